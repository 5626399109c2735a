// Assignments are values: of what was stored, not of what was assigned.
struct output {
    u8 a;
    s32 b;
    s8 c;
    s32 d;
};
output.b = output.a = 300;
output.d = output.c = 200;
test "cut" {
    run;
    expect output.a == 44 && output.b == 44 && output.c == -56 && output.d == -56;
}
