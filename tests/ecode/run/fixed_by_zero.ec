// x / 0 is 0, x % 0 is x.
fixed x = 2.5;
fixed zero = event.pid;
struct output {
    fixed quotient, rest;
};
output.quotient = x / zero;
output.rest = x % zero;
test "defined" {
    run;
    expect output.quotient == 0 && output.rest == 2.5 && fault == 0;
}
