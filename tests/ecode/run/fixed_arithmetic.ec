// + - * / % of decimal numbers: exact to the millionth, cut towards zero.
//@ input: s32 n
fixed x = n / 8.0;
struct output {
    fixed sum, product, quotient, rest, negative;
    int whole;
};
output.sum = x + 0.000001;
output.product = x * 1.5;
output.quotient = x / 3;
output.rest = x % 0.5;
output.negative = -x;
output.whole = x;
test "ten eighths" {
    input.n = 10;
    run;
    expect output.sum == 1.250001 && output.product == 1.875 && output.quotient == 0.416666;
    expect output.rest == 0.25 && output.negative == -1.25 && output.whole == 1;
}
test "negative: towards zero" {
    input.n = -10;
    run;
    expect output.product == -1.875 && output.quotient == -0.416666 && output.rest == -0.25 &&
            output.whole == -1;
}
