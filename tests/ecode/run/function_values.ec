// Parameters and results are converted; a function that ends without return gives 0.
s8 narrow(int x) {
    return x;
}
u64 wide(u32 x) {
    return x;
}
bool truth(fixed x) {
    return x;
}
int nothing(int x) {
    if (x > 5)
        return x;
}
fixed quarter(int x) {
    return x / 4.0;
}
//@ input: s32 a
struct output {
    int narrow;
    u64 wide;
    bool truth;
    int nothing;
    fixed quarter;
};
output.narrow = narrow(a);
output.wide = wide(a);
output.truth = truth(a / 1000.0);
output.nothing = nothing(a);
output.quarter = quarter(a);
test "minus one" {
    input.a = -1;
    run;
    expect output.narrow == -1 && output.wide == 0xffffffff && output.truth &&
            output.nothing == 0 && output.quarter == -0.25;
}
test "300" {
    input.a = 300;
    run;
    expect output.narrow == 44 && output.nothing == 300 && output.quarter == 75;
}
