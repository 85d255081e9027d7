"""Compares answer documents, which `documents.rs` prints one per line, with those that the
providers' own libraries create for the same answer. They are compared as canonical XML, and
Vonage's as JSON.

documents.py twilio|others: Twilio's library is in a separate folder. Telnyx has no library for
TeXML, which is TwiML, so its documents are compared with Twilio's.
"""
import json
import sys
from xml.etree.ElementTree import canonicalize

HOOK = "https://ringwell.example/t/main/"
TO, SIP, CALLER, SHOWN = "+18005550199", "sip:a.b@pbx.example", "+14155551234", "+18005550100"
FIRST = "leg=0&tried=0123abcd&n=18005551212"
SECOND = "leg=1&tried=0123abcd4567cdef&n=18005551212"
TEXT = 'A call <from> "the" web & more'
EVENTS = "initiated ringing answered completed"


def twiml(VoiceResponse, Dial):
    def number():
        dial = Dial(action=f"{HOOK}dial?{FIRST}", answer_on_bridge=True, caller_id=SHOWN, method="POST", timeout=20)
        dial.number(TO, url=f"{HOOK}whisper?{FIRST}", status_callback=f"{HOOK}status?{FIRST}",
                    status_callback_event=EVENTS, status_callback_method="POST")
        return dial

    def sip():
        dial = Dial(action=f"{HOOK}dial?{SECOND}", answer_on_bridge=True, method="POST", timeout=20)
        dial.sip(SIP, status_callback=f"{HOOK}status?{SECOND}", status_callback_event=EVENTS,
                 status_callback_method="POST")
        return dial

    def document(fill):
        response = VoiceResponse()
        fill(response)
        return str(response)

    return {
        "number": document(lambda it: it.append(number())),
        "sip": document(lambda it: it.append(sip())),
        "busy": document(lambda it: it.reject(reason="busy")),
        "rejected": document(lambda it: it.reject(reason="rejected")),
        "whisper": document(lambda it: it.say(TEXT)),
        "nothing": document(lambda it: None),
    }


def plivo():
    from plivo import plivoxml as xml

    def dial(query, target, caller, **more):
        element = xml.DialElement(
            action=f"{HOOK}dial?{query}", method="POST", time_limit=14400, timeout=20, caller_id=caller,
            callback_url=f"{HOOK}event?{query}", callback_method="POST", redirect=True, sip_headers="rwcall=c01ab", **more)
        return element.add(target)

    def document(*elements):
        response = xml.ResponseElement()
        for element in elements:
            response.add(element)
        return response.to_string()

    return {
        "number": document(dial(FIRST, xml.NumberElement(TO[1:]), SHOWN[1:], confirm_sound=f"{HOOK}whisper?{FIRST}")),
        "sip": document(dial(SECOND, xml.UserElement(SIP), CALLER[1:])),
        "busy": document(xml.HangupElement(reason="busy")),
        "rejected": document(xml.HangupElement(reason="rejected")),
        "whisper": document(xml.SpeakElement(TEXT)),
        "nothing": document(),
    }


def bandwidth():
    from bandwidth.models.bxml import Hangup, PhoneNumber, Response, SipUri, Transfer

    def transfer(query, target, caller):
        return Transfer([target], transfer_caller_id=caller, call_timeout="20", tag="c_01ab",
                        transfer_complete_url=f"{HOOK}complete?{query}", username="user", password="password")

    def document(*verbs):
        return Response(list(verbs)).to_bxml()

    return {
        "number": document(transfer(FIRST, PhoneNumber(TO, transfer_answer_url=f"{HOOK}whisper?{FIRST}"), SHOWN)),
        "sip": document(transfer(LAST, SipUri(SIP), CALLER)),
        "busy": document(Hangup()),
        "rejected": document(Hangup()),
        # The library does not escape `<`, which is invalid XML. The text is compared with Twilio's
        # and Plivo's.
        "nothing": document(),
    }


def vonage():
    from vonage_voice.models.connect_endpoints import OnAnswer, PhoneEndpoint, SipEndpoint
    from vonage_voice.models.ncco import Connect, Talk

    def actions(*all):
        return [one.model_dump(by_alias=True, exclude_none=True) for one in all]

    phone = PhoneEndpoint(number=TO[1:], onAnswer=OnAnswer(url=f"{HOOK}whisper?{FIRST}"))
    desk = SipEndpoint(uri=SIP, headers={"ringwell-from": CALLER})
    return {
        "number": actions(Connect(endpoint=[phone], from_=SHOWN[1:], timeout=20, eventType="synchronous",
                                  eventUrl=[f"{HOOK}dial?{FIRST}"])),
        "sip": actions(Connect(endpoint=[desk], from_="18005551212", timeout=20, eventType="synchronous",
                               eventUrl=[f"{HOOK}dial?{SECOND}"])),
        "busy": [],
        "rejected": [],
        "whisper": actions(Talk(text=TEXT)),
    }


def same(one, other):
    if isinstance(other, list):
        return json.loads(one) == json.loads(json.dumps(other))
    return canonicalize(one, strip_text=True) == canonicalize(other, strip_text=True)


def main(which):
    if which == "twilio":
        from twilio.twiml.voice_response import Dial, VoiceResponse
        wanted = {"twilio": twiml(VoiceResponse, Dial)}
        wanted["telnyx"] = wanted["twilio"]
    else:
        from signalwire.voice_response import Dial, VoiceResponse
        wanted = {"signalwire": twiml(VoiceResponse, Dial), "plivo": plivo(), "bandwidth": bandwidth(), "vonage": vonage()}
    compared = faults = 0
    for line in sys.stdin:
        line = json.loads(line)
        other = wanted.get(line["provider"], {}).get(line["case"])
        if other is None:
            continue
        compared += 1
        if not same(line["body"], other):
            faults += 1
            print(f"{line['provider']} {line['case']}:\n  ours    {line['body']}\n  library {other}")
    cases = sum(len(cases) for cases in wanted.values())
    print(f"{compared - faults} of {cases} documents of {', '.join(wanted)} are the libraries' own")
    return 0 if faults == 0 and compared == cases else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
