// From left to right, and of an assignment the place before the value.
static u32 order;
u32 next(u32 digit) {
    order = order * 10 + digit;
    return digit;
}
struct output {
    u32 list[4];
    u32 sum, all;
};
output.sum = next(1) + next(2) * next(3);
output.list[next(3)] = next(2);
output.list[next(1)] += next(4);
output.all = (next(5), next(6));
output.all += max(next(7), next(8));
test "in order" {
    run;
    expect output.sum == 7 && output.list[3] == 2 && output.list[1] == 4 && output.all == 14;
    expect order == (u32)1233214 * 10000 + 5678;
}
