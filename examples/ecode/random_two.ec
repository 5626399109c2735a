// Shows:  load balancing: two hosts of a cluster at random get the event.
// Needs:  a channel whose sinks tell anything.
// Run:    ecalls ecode test examples/ecode/random_two.ec --sinks load
// Expect: its tests pass. No load is compared: the source cancels one when the other one begins,
//         which is better than any choice by loads that are a second old.
//@ sinks: load

const u64 SILENT_NS = 5000000000;

best(2, age(sink) > SILENT_NS ? -1 : (long)(random() >> 1));

for (s in sinks)
    if (age(s) > SILENT_NS)
        reject(s);

test "the two that are there" {
    sinks[0].load = 1;
    sinks[1].load = 1;
    sinks[2].load = 1;
    age(sinks[1]) = 6000000000;
    run;
    expect accepted == 0b101;
}

test "two of them" {
    sinks[0].load = 1;
    sinks[1].load = 1;
    sinks[2].load = 1;
    sinks[3].load = 1;
    run;
    // Without its two lowest bits nothing is left, and with one it is not.
    expect accepted && (accepted & (accepted - 1));
    expect !(accepted & (accepted - 1) & ((accepted & (accepted - 1)) - 1));
}
