// The output begins as zeros in every run, whatever an earlier run left.
struct output {
    u8 a;
    u64 b;
    u8 list[5];
};
static u32 runs;
if (runs++ == 0) {
    output.a = 1;
    output.b = 2;
    output.list[4] = 3;
}
test "zeros again" {
    run;
    expect output.a == 1 && output.b == 2 && output.list[4] == 3;
    run;
    expect output.a == 0 && output.b == 0 && output.list[4] == 0;
}
