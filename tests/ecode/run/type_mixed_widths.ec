// Where two types meet: what C says.
//@ input: s32 a; u32 b; s64 c; u64 d; s16 e
struct output {
    bool int_unsigned, long_unsigned, short_unsigned, choice;
    long sum;
    u64 product;
};
output.int_unsigned = a < b;
output.long_unsigned = c < b;
output.short_unsigned = e > d;
output.choice = (true ? a : b) < 0;
output.sum = a + b + c;
output.product = e * d;
test "minus ones" {
    input.a = -1;
    input.b = 1;
    input.c = -1;
    input.d = 2;
    input.e = -1;
    run;
    expect !output.int_unsigned && output.long_unsigned && output.short_unsigned && !output.choice;
    expect output.sum == -1 && output.product == (u64)-2;
}
