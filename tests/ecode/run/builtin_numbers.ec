// min, max, clamp, abs on the types in which their arguments meet.
//@ input: s32 a; u32 b; s64 c
struct output {
    long least, most, kept, size;
    u32 unsigned_least;
};
output.least = min(a, c);
output.most = max(a, c);
output.kept = clamp(c, -10, 10);
output.size = abs(a);
output.unsigned_least = min(a, b);
test "signs" {
    input.a = -5;
    input.b = 7;
    input.c = 100;
    run;
    expect output.least == -5 && output.most == 100 && output.kept == 10 && output.size == 5;
    expect output.unsigned_least == 7;
}
test "the least number" {
    input.a = (int)0x80000000;
    input.c = -11;
    run;
    expect output.size == (int)0x80000000 && output.kept == -10;
}
