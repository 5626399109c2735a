// No more than three events in a second.
const u64 SECOND_NS = 1000000000;
static u64 second;
static u32 events;
if (event.time / SECOND_NS != second) {
    second = event.time / SECOND_NS;
    events = 0;
}
return ++events <= 3;
test "four in one" {
    event.time = 5000000000;
    run;
    run;
    run;
    expect result == 1;
    run;
    expect result == 0;
    event.time = 6000000000;
    run;
    expect result == 1 && events == 1 && second == 6;
}
