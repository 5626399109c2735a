// while looks first, do looks afterwards; continue goes to the condition.
//@ input: u32 n
struct output {
    u32 whiles, dos, odd;
};
u32 left = n;
while (left > 0) {
    left--;
    output.whiles++;
}
do
    output.dos++;
while (output.dos < n);
int i = 0;
do {
    if (i % 2 == 0)
        continue;
    output.odd += i;
} while (++i < 8);
test "none" {
    run;
    expect output.whiles == 0 && output.dos == 1 && output.odd == 16;
}
test "four" {
    input.n = 4;
    run;
    expect output.whiles == 4 && output.dos == 4;
}
