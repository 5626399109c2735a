// Branches, the else of the nearest if, conditions of every type.
//@ input: s32 a; u64 b; u8 c
struct output {
    int way, nearest, truth;
};
if (a > 0)
    output.way = 1;
else if (a < 0)
    output.way = 2;
else
    output.way = 3;
if (b)
    if (c)
        output.nearest = 1;
    else
        output.nearest = 2;
fixed small = 0.000001;
if (small)
    output.truth |= 1;
if (!b)
    output.truth |= 2;
if (0x100000000)
    output.truth |= 4;
test "positive" {
    input.a = 1;
    run;
    expect output.way == 1 && output.nearest == 0 && output.truth == 7;
}
test "negative" {
    input.a = -1;
    input.b = 0x8000000000000000;
    run;
    expect output.way == 2 && output.nearest == 2 && output.truth == 5;
}
test "neither" {
    input.b = 1;
    input.c = 255;
    run;
    expect output.way == 3 && output.nearest == 1;
}
