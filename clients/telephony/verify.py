"""Verifies webhooks, given as one line of JSON each on standard input, with the library of Standard
Webhooks.
"""
import json
import sys

from standardwebhooks.webhooks import Webhook

count = 0
for line in sys.stdin:
    webhook = json.loads(line)
    Webhook(webhook["secret"]).verify(webhook["body"], webhook["headers"])
    count += 1
print(f"{count} verified")
