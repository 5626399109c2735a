// The event's data in all types of a format.
//@ input: u8 a; s8 b; u16 c; s16 d; u32 e; s32 f; u64 g; s64 h; char i; char text[3]; u16 list[2]
struct output {
    s64 narrow, wide;
    bool text;
};
output.narrow = a + b + c + d;
output.wide = e + f + g + h + i + list[1];
output.text = text == "xyz";
test "extremes" {
    input.a = 255;
    input.b = -128;
    input.c = 65535;
    input.d = -32768;
    input.e = 0xffffffff;
    input.f = -1;
    input.g = 1;
    input.h = -5;
    input.i = -1;
    input.list = { 9, 10 };
    input.text = "xyz";
    run;
    expect output.narrow == 255 - 128 + 65535 - 32768;
    expect output.wide == 0x100000003 && output.text;
}
