// Statements that change a static in one step: + - & | ^ on 32 and 64 bits.
//@ input: u64 by
static u32 a = 10;
static u64 b = 1000, c = 0xff, d, e = 0xf0f0;
static s32 f;
static s64 g;
a += by;
b -= by;
c &= by;
d |= by << 4;
e ^= by;
f--;
g++;
test "steps" {
    input.by = 0x0f;
    run;
    expect a == 25 && b == 985 && c == 0x0f && d == 0xf0 && e == 0xf0ff && f == -1 && g == 1;
    input.by = 0xffffffff;
    run;
    expect a == 24 && c == 0x0f && f == -2 && g == 2;
}
