// Shows:  addresses of IPv4: compared with one, and with a subnet.
// Needs:  the service socket.
// Run:    ecalls ecode test examples/ecode/subnet.ec
// Expect: its tests pass. It lets through what comes from this machine, from 10.0.0.0/8 or from
//         192.168.4.0/22, and not from 192.168.4.1, the router.

struct input {
    u64 cookie;
    u32 bytes, backlog;
    u16 family, local_port, remote_port, inherited;
    u32 remote_ip4, pad;
};

// An address as it is read: 10.1.2.3 is address(10, 1, 2, 3).
u32 address(u32 a, u32 b, u32 c, u32 d) {
    return a << 24 | b << 16 | c << 8 | d;
}

// ntohl: in an event the first byte of an address is the lowest, so that 10.1.2.3 is 0x0302010a.
u32 host_order(u32 ip4) {
    return ip4 << 24 | (ip4 & 0xff00) << 8 | ip4 >> 8 & 0xff00 | ip4 >> 24;
}

// Whether the first bits, 1 to 32 of them, are the same.
bool within(u32 ip4, u32 net, u32 bits) {
    return (ip4 ^ net) >> (32 - bits) == 0;
}

u32 remote = host_order(remote_ip4);
if (family != AF_INET || remote == address(192, 168, 4, 1))
    return 0;
if (within(remote, address(10, 0, 0, 0), 8) || within(remote, address(192, 168, 4, 0), 22))
    return 1;
return remote == address(127, 0, 0, 1);

test "a network of a whole byte" {
    input.family = AF_INET;
    input.remote_ip4 = 0x0302010a;
    run;
    expect result == 1;
    input.remote_ip4 = 0x0302010b;
    run;
    expect result == 0;
}

test "a network that ends within a byte" {
    input.family = AF_INET;
    input.remote_ip4 = 0xff07a8c0;
    run;
    expect result == 1;
    input.remote_ip4 = 0x0008a8c0;
    run;
    expect result == 0;
}

test "one address" {
    input.family = AF_INET;
    input.remote_ip4 = 0x0104a8c0;
    run;
    expect result == 0;
    input.remote_ip4 = 0x0100007f;
    run;
    expect result == 1;
    input.family = AF_INET6;
    run;
    expect result == 0;
}
