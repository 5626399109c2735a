"""A host in another language, written from doc/channels.md, with the Zenoh client for Python: it
has the channel `load` of the cluster `lab` open and knows nothing of our relay, whose keys it
judges.

    host.py ADDRESS HOST FORMAT        HOST in hexadecimal, as in keys

It prints what it sees as lines of JSON: {"info": ...}, {"hosts": [...]} and {"frame": ...}, and
sends a frame for each line of its input: {"to": HOST, ...} with the fields of the frame.
"""

import json
import sys
from pathlib import Path

import zenoh

sys.path.insert(0, str(Path(__file__).parents[2] / "ecalls-channel/tests"))
import judge  # noqa: E402: the second reading of frames

BASE = "ecalls/lab/ch/load"


def say(**what):
    print(json.dumps(what), flush=True)


def main():
    address, own, text = sys.argv[1:]
    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("listen/endpoints", "[]")
    config.insert_json5("connect/endpoints", json.dumps([f"tcp/{address}"]))
    with zenoh.open(config) as session:
        info = [reply.ok.payload.to_string() for reply in session.get(f"{BASE}/info") if reply.ok]
        say(info=[json.loads(one) for one in info])
        answer = {"format": text, "kinds": "event", "policy": "reliable", "creator": int(own, 16)}

        def reply(query):
            query.reply(f"{BASE}/info", json.dumps(answer))

        def arrived(sample):
            say(frame=judge.read(bytes(sample.payload)))

        kept = [
            session.declare_queryable(f"{BASE}/info", reply),
            session.declare_subscriber(f"{BASE}/to/{own}/*", arrived),
            session.liveliness().declare_token(f"{BASE}/host/{own}/-/{judge.text_id(text):016x}"),
        ]
        tokens = session.liveliness().get(f"{BASE}/host/*/*/*")
        say(hosts=sorted(str(one.ok.key_expr).split("/")[5] for one in tokens if one.ok))
        for line in sys.stdin:
            given = json.loads(line)
            session.put(f"{BASE}/to/{given['to']}/{own}", judge.write(given))
        del kept


main()
