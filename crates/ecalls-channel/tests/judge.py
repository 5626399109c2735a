"""A second reading of abi/wire.h, from the text of the header alone: the judge of the first.

Reads lines of JSON from standard input and answers each with one: {"frame": HEX} with the fields of
the frame, or null if it is none; {"name": TEXT, "format": TEXT, ...} with the frame in hex.
"""

import json
import struct
import sys

# magic version size channel host epoch sequence format request sinks left kind type priority
# attributes number[8] value[8]
HEADER = struct.Struct("<IHHQQQQQQQQIIII8B8Q")


def text_id(text):
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def read(frame):
    if len(frame) < HEADER.size:
        return None
    fields = HEADER.unpack_from(frame)
    names = "magic version size channel host epoch sequence format request sinks left_ns kind type"
    header = dict(zip((names + " priority attributes").split(), fields))
    data = frame[HEADER.size :]
    if header.pop("magic") != 0x4C4C4345 or header.pop("version") != 1:
        return None
    if header.pop("size") != len(data) or header["attributes"] > 8:
        return None
    used = header["attributes"]
    header["attributes"] = list(zip(fields[15 : 15 + used], fields[23 : 23 + used]))
    header["data"] = data.hex()
    return header


def write(given):
    attributes = given["attributes"]
    spare = 8 - len(attributes)
    data = bytes.fromhex(given["data"])
    return HEADER.pack(
        0x4C4C4345,
        1,
        len(data),
        text_id(given["name"]),
        given["host"],
        given["epoch"],
        given["sequence"],
        text_id(given["format"]),
        0,
        0,
        given["left_ns"],
        given["kind"],
        given["type"],
        given["priority"],
        len(attributes),
        *[number for number, _ in attributes],
        *[0] * spare,
        *[value for _, value in attributes],
        *[0] * spare,
    ) + data


def main():
    for line in sys.stdin:
        question = json.loads(line)
        if "frame" in question:
            answer = read(bytes.fromhex(question["frame"]))
        else:
            answer = write(question).hex()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
