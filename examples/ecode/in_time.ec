// Shows:  the time that is left, an attribute of the channel, and putting an event off.
// Needs:  events with deadlines, a channel with the attribute "load" (percent).
// Run:    ecalls ecode test examples/ecode/in_time.ec --attributes load
// Expect: two tests, passed.
//@ attributes: load

enum { TOO_LATE = 7 };

const s64 NEEDED_NS = 200000;
const u64 PAUSE_US = 500;

if (event.time_left < NEEDED_NS)
    drop(TOO_LATE);
// What is put off is the rest of the chain: the result still says whether there is one.
if (attr("load") > 90 && event.time_left > NEEDED_NS + (s64)PAUSE_US * 1000)
    defer(PAUSE_US);

test "without a deadline there is always time" {
    run;
    expect result == 1;
}

test "under load, events wait" {
    attr("load") = 95;
    run;
    expect result == 1;
    expect defer(500);
}
