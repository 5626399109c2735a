// & | ^ ~ on mixed widths and signs.
//@ input: s8 a; u16 b; s32 c; u64 d
struct output {
    u64 and, or, xor, not, mixed;
};
output.and = a & d;
output.or = b | c;
output.xor = a ^ b;
output.not = ~b;
output.mixed = (u32)c & 0xff00 | a ^ d & b;
test "signs are extended" {
    input.a = -1;
    input.b = 0xf0f0;
    input.c = -16;
    input.d = 0x123456789abcdef0;
    run;
    expect output.and == 0x123456789abcdef0 && output.or == (u64)-16l;
    expect output.xor == (u64)(long)(0xf0f0 ^ -1) && output.not == (u64)(long)~0xf0f0;
    expect output.mixed == (0xff00 | (u64)-1 ^ 0x123456789abcdef0 & 0xf0f0);
}
