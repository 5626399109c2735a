// C's precedence, with nothing in parentheses.
//@ input: s32 a; s32 b; s32 c
struct output {
    int x, y, z, w;
};
output.x = a + b * c - a % b << 1 & 0xff;
output.y = a & b == c | a ^ b;
output.z = -a * !c + ~b;
output.w = a > b ? c : a < b ? b : a || b && c;
test "some" {
    input.a = 7;
    input.b = 3;
    input.c = 2;
    run;
    expect output.x == (((7 + 6) - 1) << 1 & 0xff) && output.y == 4;
    expect output.z == -4 && output.w == 2;
}
