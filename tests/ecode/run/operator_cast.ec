// Between all widths and signs, to bool, to and from fixed.
//@ input: s64 a
struct output {
    s8 b;
    u8 c;
    s16 d;
    u16 e;
    s32 f;
    u32 g;
    u64 h;
    bool i;
    fixed j;
    char k;
};
output.b = (s8)a;
output.c = (u8)a;
output.d = (short)a;
output.e = (unsigned short)a;
output.f = (int)a;
output.g = (unsigned)a;
output.h = (u64)(s8)a;
output.i = (bool)(a << 8);
output.j = (fixed)(s8)a;
output.k = a;
test "ones and zeros" {
    input.a = 0x00000000ffff80f0;
    run;
    expect output.b == -16 && output.c == 0xf0 && output.d == (short)0x80f0 && output.e == 0x80f0;
    expect output.f == -32528 && output.g == 0xffff80f0 && output.h == (u64)-16 && output.i;
    expect output.j == -16 && output.k == -16;
}
test "what a bool sees" {
    input.a = 1l << 56;
    run;
    expect !output.i && output.b == 0;
}
