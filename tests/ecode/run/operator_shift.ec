// Counts are taken modulo the width of the left side; >> keeps the sign.
//@ input: s32 a; u32 b; s64 c; u64 d; u32 n
struct output {
    int left, right;
    u32 unsigned_right;
    long wide_left, wide_right;
    u64 wide_unsigned;
};
output.left = a << n;
output.right = a >> n;
output.unsigned_right = b >> n;
output.wide_left = c << n;
output.wide_right = c >> n;
output.wide_unsigned = d >> n;
test "by four" {
    input.a = -16;
    input.b = 0xf0000000;
    input.c = -256;
    input.d = 0xf000000000000000;
    input.n = 4;
    run;
    expect output.left == -256 && output.right == -1 && output.unsigned_right == 0x0f000000;
    expect output.wide_left == -4096 && output.wide_right == -16 &&
            output.wide_unsigned == 0x0f00000000000000;
}
test "by 33: 1 of an int, 33 of a long" {
    input.a = 3;
    input.b = 8;
    input.c = 3;
    input.d = 0x800000000;
    input.n = 33;
    run;
    expect output.left == 6 && output.right == 1 && output.unsigned_right == 4;
    expect output.wide_left == 3l << 33 && output.wide_right == 0 && output.wide_unsigned == 4;
}
test "by 64: not at all" {
    input.a = 5;
    input.c = 5;
    input.n = 64;
    run;
    expect output.left == 5 && output.wide_left == 5;
}
