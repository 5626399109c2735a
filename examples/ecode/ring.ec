// Shows:  a ring buffer: what the latest events were, and an index that stays inside.
// Needs:  the service disk.
// Run:    ecalls ecode test examples/ecode/ring.ec
// Expect: its test passes. It lets through requests that took more than twice as long as the latest
//         eight did on average.

struct input {
    u64 latency_ns, device_ns, sector;
    u32 bytes, status, major, minor;
    char disk[16], comm[16];
};

enum { KEPT = 8 };

static u64 latest[KEPT];
static u32 at;

u64 sum = 0;
for (int i = 0; i < KEPT; i++)
    sum += latest[i];
// Reduced where it is written, so it is inside wherever it is used. Two CPUs may write one place.
latest[at] = latency_ns;
at = (at + 1) % KEPT;
return latency_ns > 2 * (sum / KEPT);

test "the ninth replaces the first" {
    input.latency_ns = 8000;
    run;
    expect result == 1 && at == 1;
    input.latency_ns = 1000;
    run;
    expect result == 0;
    run;
    run;
    run;
    run;
    run;
    run;
    expect at == 0 && latest[0] == 8000;
    run;
    expect at == 1 && latest[0] == 1000;
    input.latency_ns = 2001;
    run;
    expect result == 1;
}
