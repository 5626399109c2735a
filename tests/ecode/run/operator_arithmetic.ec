// + - * / % of ints that are only known when it runs; what C leaves open is defined.
//@ input: s32 a; s32 b
struct output {
    int sum, difference, product, quotient, rest, negative;
};
output.sum = a + b;
output.difference = a - b;
output.product = a * b;
output.quotient = a / b;
output.rest = a % b;
output.negative = -a;
test "plain" {
    input.a = -7;
    input.b = 2;
    run;
    expect output.sum == -5 && output.difference == -9 && output.product == -14;
    expect output.quotient == -3 && output.rest == -1 && output.negative == 7;
}
test "by zero" {
    input.a = 9;
    run;
    expect output.quotient == 0 && output.rest == 9 && fault == 0;
}
test "overflow wraps" {
    input.a = 0x7fffffff;
    input.b = 1;
    run;
    expect output.sum == (int)0x80000000 && output.difference == 0x7ffffffe;
}
test "the least number" {
    input.a = (int)0x80000000;
    input.b = -1;
    run;
    expect output.quotient == (int)0x80000000 && output.rest == 0 &&
            output.negative == (int)0x80000000;
    expect output.product == (int)0x80000000;
}
