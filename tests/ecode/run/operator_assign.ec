// Every assignment with an operator, on narrow places: computed wide, then cut.
//@ input: s32 by
struct output {
    u8 add;
    s8 subtract;
    u16 multiply;
    s16 divide;
    u8 rest;
    u8 and, or, xor;
    u16 left;
    s8 right;
};
output.add = 250;
output.add += by;
output.subtract = -120;
output.subtract -= by * 10;
output.multiply = 300;
output.multiply *= by * 100;
output.divide = -300;
output.divide /= by;
output.rest = 200;
output.rest %= by;
output.and = 0xf7;
output.and &= by;
output.or = 0xf0;
output.or |= by;
output.xor = 0xff;
output.xor ^= by;
output.left = 0x1234;
output.left <<= by;
output.right = -128;
output.right >>= by;
test "seven" {
    input.by = 7;
    run;
    expect output.add == 1 && output.subtract == 66 && output.multiply == 13392;
    expect output.divide == -42 && output.rest == 4;
    expect output.and == 7 && output.or == 0xf7 && output.xor == 0xf8;
    expect output.left == 0x1a00 && output.right == -1;
}
