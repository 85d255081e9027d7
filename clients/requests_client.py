"""Python's requests, with its defaults: JSON has spaces, and all characters outside ASCII are
escaped.
"""
import sys
from urllib.parse import urlencode

import requests

base, pool, key, keyword = sys.argv[1:]
session = requests.Session()
bulk = f"{base}/api/2013-07-01/bulk.json"
suffix = f"{pool}/allocate_number.json?{urlencode({'ring_pool_key': key, 'keyword': keyword})}"
rows = [{"api_suffix": suffix, "request_id": request_id} for request_id in ("a/b&c", 7)]
responses = session.post(bulk, json={"requests": rows}).json()["responses"]
print("bulk", *(field for row in responses for field in (row["promo_number"], row["request_id"])))
path = f"{base}/api/2015-12-09/ring_pools/{pool}/allocate_number.json"
single = session.get(path, params={"ring_pool_key": key, "keyword": keyword})
print("single", single.json()["promo_number"])
refused = session.post(bulk, json=[])
print("refused", refused.status_code, refused.json()["errors"]["class"])
