// Shows:  a policy of `ecalls guard`: clients that are never turned away, and a limit of one's own.
// Needs:  `ecalls guard`, as root.
// Run:    ecalls guard --port 80 --policy examples/ecode/guard.ec
// Expect: while the server is behind, connections are turned away, but none from this machine
//         (health checks); nobody else gets one while 1,000 are open.

struct input {
    u64 age_ns, wait_ns, pace_ns, target_ns, queued, numconnects, response_ns;
    u64 open, admitted, refused;
    u16 refuses, family, remote_port, pad;
    u32 remote_ip4;
    u8 remote_ip[16];
};

const u64 OPEN_MOST = 1000;

// The first byte of an address is the lowest.
if (family == AF_INET && (remote_ip4 & 0xff) == 127)
    return 1;
return !refuses && open < OPEN_MOST;

test "this machine is served, whatever the rule says" {
    input.family = AF_INET;
    input.remote_ip4 = 0x0100007f;
    input.refuses = 1;
    run;
    expect result == 1;
}

test "others as the rule says, while there are few" {
    input.family = AF_INET;
    input.remote_ip4 = 0x0201000a;
    run;
    expect result == 1;
    input.refuses = 1;
    run;
    expect result == 0;
    input.refuses = 0;
    input.open = OPEN_MOST;
    run;
    expect result == 0;
}
