// Shows:  the shortest filter: an expression. Events for which it is 0 go no further.
// Needs:  the service socket.
// Run:    ecalls ecode test examples/ecode/large.ec
// Expect: its tests pass. It lets through sockets on which at least 1000 bytes wait, and
//         connections that wait for accept.

struct input {
    u64 cookie;
    u32 bytes, backlog;
    u16 family, local_port, remote_port, inherited;
    u32 remote_ip4, pad;
};

bytes >= 1000 || backlog > 0

test "many bytes" {
    input.bytes = 1000;
    run;
    expect result != 0;
}

test "few bytes" {
    input.bytes = 999;
    run;
    expect result == 0;
}

test "a connection" {
    input.backlog = 1;
    run;
    expect result != 0;
}
