// Shows:  decimal numbers: a moving average, and two bounds so that it does not flutter.
// Needs:  the service sched.
// Run:    ecalls ecode test examples/ecode/smooth.ec
// Expect: its test passes. It lets through long waits for a CPU, while they are long on average.

struct input {
    u64 delay_ns;
    u32 pid, tid, priority, previous;
    char comm[16];
};

const fixed WEIGHT = 0.25;
const fixed HIGH_US = 2000, LOW_US = 1000;

static fixed mean_us;
static bool high;

fixed delay_us = (fixed)(long)delay_ns / 1000;
mean_us += (delay_us - mean_us) * WEIGHT;
if (mean_us > HIGH_US)
    high = true;
else if (mean_us < LOW_US)
    high = false;
return high;

test "it needs more than one long wait, and more than one short wait" {
    input.delay_ns = 5000000;
    run;
    expect mean_us == 1250.0 && result == 0;
    run;
    expect mean_us == 2187.5 && result == 1;
    input.delay_ns = 0;
    run;
    expect mean_us == 1640.625 && result == 1;
    run;
    run;
    expect result == 0;
}
