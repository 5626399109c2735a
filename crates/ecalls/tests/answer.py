"""The other host of tests/answer.rs: it builds packets, and reads replies, by the RFCs alone.

Reads lines of JSON: {"case": NAME, "version": 4 or 6, "data": HEX, "reply": whether one is
expected}. Sends such a packet and answers with one line: the reply's data in hex, what is wrong
with the reply, or "sent". Arguments: the interface, the hardware address of the service's, and
the service's port.
"""

import json
import socket
import struct
import sys

interface, hardware, port = sys.argv[1], bytes.fromhex(sys.argv[2]), int(sys.argv[3])
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.bind((interface, 0))
wire.settimeout(20)
OWN = wire.getsockname()[4]
ADDRESSES = {
    4: [socket.inet_aton(a) for a in ("10.77.0.2", "10.77.0.1")],
    6: [socket.inet_pton(socket.AF_INET6, a) for a in ("fd77::2", "fd77::1")],
}
CLIENT = 40001
UDP = {4: b"\x08\0\x11", 6: b"\x86\xdd\x11"}


def total(data):
    data += b"\0" * (len(data) % 2)
    value = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while value > 0xFFFF:
        value = (value & 0xFFFF) + (value >> 16)
    return value


def pseudo(version, source, target, length):
    if version == 4:
        return source + target + struct.pack("!HH", 17, length)
    return source + target + struct.pack("!II", length, 17)


def build(case, version, data):
    source, target = ADDRESSES[version]
    ports = [CLIENT, port]
    protocol = 17
    if case == "big":
        data += b"x" * 1000
    if case == "empty":
        data = b""
    if case == "from_port":
        ports[0] = port
    if case == "from_zero":
        ports[0] = 0
    if case == "other_port":
        ports[1] = port + 1
    if case == "from_many":
        source = {4: b"\xe0\0\0\1", 6: b"\xff\2" + bytes(13) + b"\1"}[version]
    if case == "from_nobody":
        source = bytes(len(source))
    if case == "from_loopback":
        source = {4: b"\x7f\0\0\1", 6: bytes(15) + b"\1"}[version]
    if case == "to_foreign":
        target = target[:-1] + b"\x09"
    if case == "tcp":
        protocol = 6
    length = 8 + len(data)
    said = length + {"udp_long": 1, "udp_short": -1}.get(case, 0)
    if case == "udp_none":
        said = 0
    header = struct.pack("!HHHH", *ports, said, 0)
    check = total(pseudo(version, source, target, said) + header + data) ^ 0xFFFF or 0xFFFF
    if case == "no_sum":
        check = 0
    if case == "wrong_sum":
        check ^= 0x0101
    packet = struct.pack("!HHHH", *ports, said, check) + data
    if version == 4:
        options = b"\x01\x01\x01\0" if case == "options" else b""
        offset = {"fragment": 0x2000, "last_fragment": 1}.get(case, 0x4000)
        whole = 20 + len(options) + length + {"ip_long": 4, "ip_short": -4}.get(case, 0)
        first = 0x45 + len(options) // 4
        head = struct.pack("!BBHHHBBH", first, 0, whole, 7, offset, 64, protocol, 0)
        head += source + target + options
        wrong = 1 if case == "wrong_ip_sum" else 0
        head = head[:10] + struct.pack("!H", (total(head) ^ 0xFFFF) ^ wrong) + head[12:]
    else:
        whole = length + {"ip_long": 4, "ip_short": -4}.get(case, 0)
        follows = protocol
        if case == "options":
            packet = struct.pack("!BBIH", 17, 0, 0x01040000, 0) + packet
            follows, whole = 0, whole + 8
        if case in ("fragment", "last_fragment"):
            offset = 1 if case == "fragment" else 8
            packet = struct.pack("!BBHI", 17, 0, offset, 7) + packet
            follows, whole = 44, whole + 8
        head = struct.pack("!IHBB16s16s", 6 << 28, whole, follows, 64, source, target)
    to = {"to_all": b"\xff" * 6, "to_other": b"\x02" * 6}.get(case, hardware)
    kind = struct.pack("!H", 0x0800 if version == 4 else 0x86DD)
    tag = b"\x81\0\0\5" if case == "vlan" else b""
    behind = b"behind the packet" if case == "padded" else b""
    return to + OWN + tag + kind + head + packet + behind


def read(version, frame):
    """The data of a reply, or what is wrong with it."""
    client, service = ADDRESSES[version]
    if frame[:12] != OWN + hardware:
        return "hardware addresses"
    if version == 4:
        head, packet = frame[14:34], frame[34:]
        first, _, whole, _, offset, ttl, protocol = struct.unpack_from("!BBHHHBB", head)
        source, target = head[12:16], head[16:20]
        if (first, whole, offset, total(head)) != (0x45, len(frame) - 14, 0x4000, 0xFFFF):
            return "header of IPv4"
    else:
        head, packet = frame[14:54], frame[54:]
        flow, whole, protocol, ttl, source, target = struct.unpack("!IHBB16s16s", head)
        if flow != 6 << 28 or whole != len(packet):
            return "header of IPv6"
    if protocol != 17 or ttl != 64 or (source, target) != (service, client):
        return "addresses"
    ports = struct.unpack_from("!HHHH", packet)
    if ports[:3] != (port, CLIENT, len(packet)):
        return "header of UDP"
    if ports[3] == 0 or total(pseudo(version, source, target, len(packet)) + packet) != 0xFFFF:
        return "checksum"
    return packet[8:].hex()


for line in sys.stdin:
    asked = json.loads(line)
    version = asked["version"]
    wire.send(build(asked["case"], version, bytes.fromhex(asked["data"])))
    answer = "sent"
    while asked["reply"]:
        frame, origin = wire.recvfrom(4096)
        # Neither its own (4), nor what the kernel says of neighbours and of ports.
        kind = frame[12:14] + frame[23 if version == 4 else 20 :][:1]
        if origin[2] != 4 and kind == UDP[version]:
            answer = read(version, frame)
            break
    print(answer, flush=True)
