// min, max, clamp and abs of decimal numbers.
//@ input: s32 a
fixed x = a / 4.0;
struct output {
    fixed least, most, kept, size;
};
output.least = min(x, 1);
output.most = max(x, 0.5);
output.kept = clamp(x, -1.5, 1.5);
output.size = abs(x);
test "above" {
    input.a = 7;
    run;
    expect output.least == 1 && output.most == 1.75 && output.kept == 1.5 && output.size == 1.75;
}
test "below" {
    input.a = -7;
    run;
    expect output.least == -1.75 && output.most == 0.5 && output.kept == -1.5 &&
            output.size == 1.75;
}
