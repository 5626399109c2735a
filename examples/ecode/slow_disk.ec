// Shows:  what a program can have done: counters, a histogram, a signal.
// Needs:  the service disk; for the signal, a subscription that may send it.
// Run:    ecalls ecode test examples/ecode/slow_disk.ec
// Expect: two tests, passed. In a subscription: requests are counted by kind, their times are in
//         the histogram, and only those of a second or longer go on, with a signal.

struct input {
    u64 latency_ns, device_ns, sector;
    u32 bytes, status, major, minor;
    char disk[16], comm[16];
};

const u64 SLOW_NS = 1000000000;
const int SIGNAL = 40;

count(event.kind);
histogram(latency_ns / 1000);
if (latency_ns < SLOW_NS)
    return 0;
signal(SIGNAL, latency_ns / 1000);

test "a fast one is only counted" {
    input.latency_ns = 300000;
    run;
    expect result == 0;
}

test "a slow one goes on" {
    input.latency_ns = 1000000000;
    run;
    expect result == 1;
}
