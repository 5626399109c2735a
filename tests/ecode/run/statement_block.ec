// Blocks hide names; a local begins anew, with 0, each time it is reached.
struct output {
    int outer, inner, fresh;
};
int a = 1; {
    int a = 2;
    a += 5;
    output.inner = a;
}
output.outer = a;
for (int i = 0; i < 3; i++) {
    int fresh;
    fresh += i + 1;
    output.fresh = output.fresh * 10 + fresh;
}
test "hidden" {
    run;
    expect output.outer == 1 && output.inner == 7 && output.fresh == 123;
}
