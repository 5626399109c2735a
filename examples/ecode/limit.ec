// Shows:  state that is kept from event to event: no more than some events in a second.
// Needs:  any service.
// Run:    ecalls ecode test examples/ecode/limit.ec
// Expect: its tests pass. It lets through three events at most in each second.

const u64 SECOND_NS = 1000000000;
const u32 EVENTS = 3;

// Twice the second that is counted, plus which of the two counters counts it.
static u64 turn;
static u32 events[2];
// Events that found the turn over. Each gets another number of met++: the one that gets 0 begins
// the next turn, and those that other CPUs handle meanwhile still belong to the former one.
static u32 met[2];

u64 this = event.time / SECOND_NS;
u64 now = turn;
u32 at = now % 2;
if (this > now / 2 && met[at]++ == 0) {
    at = 1 - at;
    events[at] = 0;
    met[at] = 0;
    turn = this * 2 + at;
}
return events[at]++ < EVENTS;

test "the fourth of a second is one too many" {
    event.time = 7000000000;
    run;
    run;
    event.time = 7999999999;
    run;
    expect result == 1;
    run;
    expect result == 0;
    event.time = 8000000000;
    run;
    expect result == 1 && turn / 2 == 8 && events[turn % 2] == 1;
}

test "a late event does not bring a former second back" {
    event.time = 8000000000;
    run;
    event.time = 7999999999;
    run;
    expect result == 1 && turn / 2 == 8 && events[turn % 2] == 2;
}
