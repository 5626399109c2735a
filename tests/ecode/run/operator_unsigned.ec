// The same without sign, in 32 and in 64 bits.
//@ input: u32 a; u32 b; u64 c; u64 d
struct output {
    u32 quotient, rest, difference;
    u64 wide, wide_rest, product;
};
output.quotient = a / b;
output.rest = a % b;
output.difference = b - a;
output.wide = c / d;
output.wide_rest = c % d;
output.product = c * d;
test "large" {
    input.a = 0xffffffff;
    input.b = 16;
    input.c = 0xffffffffffffffff;
    input.d = 10;
    run;
    expect output.quotient == 0xfffffff && output.rest == 15 && output.difference == 17;
    expect output.wide == 1844674407370955161 && output.wide_rest == 5;
    expect output.product == 0xfffffffffffffff6;
}
test "by zero" {
    input.a = 3;
    input.c = 4;
    run;
    expect output.quotient == 0 && output.rest == 3 && output.wide == 0 && output.wide_rest == 4;
}
