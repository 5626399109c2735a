// The same everywhere: known values, and constants folded as it computes.
//@ input: u64 a
struct output {
    u64 seen;
    bool folded;
};
output.seen = hash(a);
output.folded = hash(1) == hash(a);
test "one" {
    input.a = 1;
    run;
    expect output.seen == 0x5692161d100b05e5 && output.folded;
}
test "zero" {
    run;
    expect output.seen == 0 && !output.folded;
}
