// Shows:  state that is kept from event to event: no more than some events in a second.
// Needs:  any service.
// Run:    ecalls ecode test examples/ecode/limit.ec
// Expect: its test passes. It lets through three processes at most in each second.

const u64 SECOND_NS = 1000000000;
const u32 EVENTS = 3;

static u64 second;
static u32 events;

u64 this = event.time / SECOND_NS;
if (this != second) {
    second = this;
    events = 0;
}
return ++events <= EVENTS;

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
    expect result == 1 && events == 1;
}
