// What every event has.
//@ kinds: OPENED, CLOSED
struct output {
    u64 sum;
    bool closed;
    s64 left;
    u32 size;
};
output.sum = event.service + event.type * 10 + event.priority * 100 + event.pid * 1000 +
        event.tid * 10000 + event.uid * 100000 + event.cpu * 1000000 + event.id * 10000000;
output.closed = event.kind == CLOSED;
output.left = event.deadline - event.time;
output.size = event.size;
test "fields" {
    event.service = 1;
    event.type = 2;
    event.priority = 3;
    event.pid = 4;
    event.tid = 5;
    event.uid = 6;
    event.cpu = 7;
    event.id = 8;
    event.kind = 1;
    event.time = 100;
    event.deadline = 90;
    event.size = 77;
    run;
    expect output.sum == 87654321 && output.closed && output.left == -10 && output.size == 77;
}
