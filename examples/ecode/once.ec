// Shows:  once(): something happens at most once in a while, for each key.
// Needs:  the service net.
// Run:    ecalls ecode test examples/ecode/once.ec
// Expect: its tests pass. It lets through connections that lose segments, once in 10 seconds each.

struct input {
    u64 cookie;
    u32 round_trip_us, retransmits, window;
    u16 local_port, remote_port;
    u8 local_ip[16], remote_ip[16];
    u32 state, former;
};

enum { RETRANSMIT };

event.kind == RETRANSMIT && once(cookie, 10000000)

test "a connection is told of once" {
    input.cookie = 5;
    run;
    expect result == 1;
    run;
    expect result == 0;
    input.cookie = 6;
    run;
    expect result == 1;
}

test "other kinds are not" {
    event.kind = 2;
    run;
    expect result == 0;
}
