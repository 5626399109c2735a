// An event with less data than the program reads: nothing happens at all.
//@ input: u64 first; u64 second; u64 third
static u32 runs;
struct output {
    u64 sum;
};
runs++;
output.sum = first + second;
return 0;
test "enough for what is read" {
    event.size = 16;
    input.first = 4;
    input.second = 5;
    run;
    expect fault == 0 && output.sum == 9;
}
test "a byte too short" {
    event.size = 15;
    run;
    expect fault == 3 && runs == 0 && result == 1;
}
test "none" {
    event.size = 0;
    run;
    expect fault == 3;
}
