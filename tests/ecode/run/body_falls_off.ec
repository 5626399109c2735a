// A body that ends without a return lets the event go on.
static u32 runs;
if (event.pid == 7)
    return 0;
runs++;
test "ended" {
    event.pid = 7;
    run;
    expect result == 0 && runs == 0;
}
test "fell off" {
    run;
    expect result == 1 && runs == 1;
}
