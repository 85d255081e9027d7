"""Python's httpx, with its defaults: compact JSON with unescaped UTF-8. The keyword is not escaped
in rows.
"""
import sys

import httpx

base, pool, key, keyword = sys.argv[1:]
raw = keyword.replace("%", "%25").replace("&", "%26").replace("+", "%2B")
with httpx.Client(base_url=f"{base}/") as client:
    suffix = f"{pool}/allocate_number.json?ring_pool_key={key}&keyword={raw}"
    rows = [{"api_suffix": suffix, "request_id": request_id} for request_id in ("a/b&c", 7)]
    responses = client.post("/api/2013-07-01/bulk.json", json={"requests": rows}).json()["responses"]
    print("bulk", *(field for row in responses for field in (row["promo_number"], row["request_id"])))
    path = f"/api/2015-12-09/ring_pools/{pool}/allocate_number.json"
    single = client.get(path, params={"ring_pool_key": key, "keyword": keyword})
    print("single", single.json()["promo_number"])
    refused = client.post("/api/2013-07-01/bulk.json", json=[])
    print("refused", refused.status_code, refused.json()["errors"]["class"])
