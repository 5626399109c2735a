// The usual conversions decide: an int meets an unsigned int as one, a char a long as one.
//@ input: s8 a; s32 b; u32 c; s64 d
struct output {
    u32 bits;
};
output.bits = (b < c) | (b < d) << 1 | (a < b) << 2 | (a == d) << 3 | (c >= d) << 4 |
        (b != a) << 5 | (b <= a) << 6 | (c > b) << 7;
test "minus one" {
    input.a = -1;
    input.b = -1;
    input.c = 1;
    input.d = -1;
    run;
    expect output.bits == 0b01011000;
}
test "small" {
    input.a = 1;
    input.b = 2;
    input.c = 3;
    input.d = 4;
    run;
    expect output.bits == 0b10100111;
}
