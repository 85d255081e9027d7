"""Prints requests like those of providers, one per line as JSON, each signed by the provider's own
library.

sign.py twilio|others COUNT: Twilio's library is in a separate folder. The random numbers are the
same in every run.
"""
import base64
import hashlib
import json
import random
import sys
from urllib.parse import quote_plus, urlencode

RANDOM = random.Random(16)
NOW = 1_700_000_000
SECRET = "a-secret-of-the-provider-0123456789"
ASCII = "abcXYZ0189 &=%+'\"<>/?#-_.~"
ALPHABET = "abcXYZ0189 &=%+'\"<>/?#äöß漢-_.~"


def text(most=20, alphabet=ALPHABET):
    return "".join(RANDOM.choice(alphabet) for _ in range(RANDOM.randrange(most)))


def fields(alphabet=ALPHABET):
    known = {"CallSid": f"CA{RANDOM.randrange(10**9)}", "From": "+14155551234", "To": "+18005550100"}
    known.update({f"Field{i}": text(alphabet=alphabet) for i in range(RANDOM.randrange(6))})
    return known


def target(alphabet=ALPHABET):
    query = {f"q{i}": text(8, alphabet) for i in range(RANDOM.randrange(3))}
    return "/t/main/status" + ("?" + urlencode(query) if query else "")


def line(provider, url, target, headers, body, secret=SECRET, method="POST"):
    print(json.dumps({
        "provider": provider, "public_url": url, "target": target, "method": method,
        "headers": headers, "body": body, "secret": secret, "now": NOW,
    }))


FORM = {"content-type": "application/x-www-form-urlencoded"}
JSON = {"content-type": "application/json"}


def host():
    return RANDOM.choice(["https://ringwell.example", "https://ringwell.example:8443", "http://ringwell.example"])


def twilio(count):
    from twilio.request_validator import RequestValidator
    validator = RequestValidator(SECRET)
    for place in range(count):
        url, where, params = host(), target(), fields()
        if place % 4 == 3:
            body = json.dumps(params)
            join = "&" if "?" in where else "?"
            where += f"{join}bodySHA256={hashlib.sha256(body.encode()).hexdigest()}"
            signature = validator.compute_signature(url + where, {})
            line("twilio", url, where, {**JSON, "x-twilio-signature": signature}, body)
        else:
            signature = validator.compute_signature(url + where, params)
            line("twilio", url, where, {**FORM, "x-twilio-signature": signature}, urlencode(params))


def signalwire(count):
    from signalwire.request_validator import RequestValidator
    validator = RequestValidator(SECRET)
    for place in range(count):
        url, where, params = host(), target(), fields()
        if place % 4 == 3:
            body = json.dumps(params)
            signature = validator.build_signature(url + where, body)
            line("signalwire", url, where, {**JSON, "x-signalwire-signature": signature}, body)
        else:
            signature = validator.build_signature_with_compatibility(url + where, params)
            line("signalwire", url, where, {**FORM, "x-signalwire-signature": signature}, urlencode(params))


def plivo(count):
    from plivo.utils import signature_v3
    # The library encodes letters outside ASCII twice in a body, and raises an error for them in a
    # query.
    for place in range(count):
        url, where, params = host(), target(ASCII), fields(ASCII)
        nonce = str(RANDOM.randrange(10**20))
        method = "GET" if place % 4 == 3 else "POST"
        if method == "GET":
            params = {}
        signature = signature_v3.get_signature_v3(
            SECRET.encode(), signature_v3.construct_post_url(url + where, params)
            if method == "POST" else signature_v3.construct_get_url(url + where, {}), nonce)
        if isinstance(signature, bytes):
            signature = signature.decode()
        headers = {"x-plivo-signature-v3": signature, "x-plivo-signature-v3-nonce": nonce}
        line("plivo", url, where, {**(FORM if params else {}), **headers}, urlencode(params), method=method)


def telnyx(count):
    from nacl.signing import SigningKey
    key = SigningKey(bytes(range(32)))
    public = base64.b64encode(bytes(key.verify_key)).decode()
    for place in range(count):
        body = json.dumps({"data": fields()}) if place % 2 else urlencode(fields())
        signed = f"{NOW}|{body}".encode()
        headers = {
            "telnyx-signature-ed25519": base64.b64encode(key.sign(signed).signature).decode(),
            "telnyx-timestamp": str(NOW),
        }
        line("telnyx", host(), target(), {**(JSON if place % 2 else FORM), **headers}, body, secret=public)


def vonage(count):
    import jwt
    for place in range(count):
        body = json.dumps(fields(), ensure_ascii=False)
        claims = {
            "iat": NOW, "jti": str(place), "iss": "Vonage", "api_key": "k",
            "payload_hash": hashlib.sha256(body.encode()).hexdigest(),
        }
        token = jwt.encode(claims, SECRET, algorithm="HS256")
        token = token.decode() if isinstance(token, bytes) else token
        line("vonage", host(), target(), {**JSON, "authorization": f"Bearer {token}"}, body)


def generic(count):
    from datetime import datetime, timezone
    from standardwebhooks.webhooks import Webhook
    secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
    for place in range(count):
        body = json.dumps(fields(), ensure_ascii=False)
        signature = Webhook(secret).sign(f"msg_{place}", datetime.fromtimestamp(NOW, timezone.utc), body)
        headers = {"webhook-id": f"msg_{place}", "webhook-timestamp": str(NOW), "webhook-signature": signature}
        line("generic", host(), target(), {**JSON, **headers}, body, secret=secret)


if __name__ == "__main__":
    which, count = sys.argv[1], int(sys.argv[2])
    if which == "twilio":
        twilio(count)
    else:
        for one in (signalwire, plivo, telnyx, vonage, generic):
            one(count)
