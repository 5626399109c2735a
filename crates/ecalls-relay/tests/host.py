"""A host in another language, written from doc/channels.md, with the Zenoh client for Python: it
has the channel `load` of the cluster `lab` open and knows nothing of our relay, whose keys it
judges.

    host.py ADDRESS HOST FORMAT        HOST in hexadecimal, as in keys

It prints what it sees as lines of JSON: {"info": ...}, {"hosts": [...]} and {"frame": ...}, and
sends a frame for each line of its input: {"to": HOST, ...} with the fields of the frame.
"""

import json
import sys
import time
from pathlib import Path

import zenoh

sys.path.insert(0, str(Path(__file__).parents[2] / "ecalls-channel/tests"))
import judge  # noqa: E402: the second reading of frames

BASE = "ecalls/lab/ch/load"


def say(**what):
    print(json.dumps(what), flush=True)


def ask(query, least):
    """The answers of a query. Right after a connection begins, it may not reach those who are there
    already, so it is repeated while there are fewer answers than expected."""
    until = time.monotonic() + 10
    while True:
        found = [one.ok for one in query() if one.ok]
        if len(found) >= least or time.monotonic() > until:
            return found
        time.sleep(0.05)


def main():
    address, own, text = sys.argv[1:]
    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("listen/endpoints", "[]")
    config.insert_json5("connect/endpoints", json.dumps([f"tcp/{address}"]))
    with zenoh.open(config) as session:
        info = ask(lambda: session.get(f"{BASE}/info"), 1)
        say(info=[json.loads(one.payload.to_string()) for one in info])
        answer = {"version": 1, "format": text, "kinds": "event", "policy": "reliable"}
        answer["creator"] = int(own, 16)

        def reply(query):
            query.reply(f"{BASE}/info", json.dumps(answer))

        def arrived(sample):
            say(frame=judge.read(bytes(sample.payload)))

        kept = [
            session.declare_queryable(f"{BASE}/info", reply),
            session.declare_subscriber(f"{BASE}/to/{own}/*", arrived),
            session.liveliness().declare_token(f"{BASE}/host/{own}/-/{judge.text_id(text):016x}"),
        ]
        tokens = ask(lambda: session.liveliness().get(f"{BASE}/host/*/*/*"), 2)
        say(hosts=sorted(str(one.key_expr).split("/")[5] for one in tokens))
        for line in sys.stdin:
            given = json.loads(line)
            session.put(f"{BASE}/to/{given['to']}/{own}", judge.write(given))
        del kept


main()
