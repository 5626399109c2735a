// Large numbers: products that need the whole formula, and what wraps.
fixed a = 1000000 + event.pid;
struct output {
    fixed square, exact, quotient;
};
output.square = a * a;
output.exact = (a + 0.123456) * 1000.001;
output.quotient = 1 / a;
test "a million" {
    run;
    expect output.square == 1000000000000.0 && output.exact == 1000001123.456123;
    expect output.quotient == 0.000001;
}
