// The value of a change is what this run has made of it.
static u32 n = 3;
static u8 small = 254;
struct output {
    u32 before, after;
    u8 wrapped;
};
output.before = n++;
output.after = n += 10;
small += 1;
output.wrapped = ++small;
test "values" {
    run;
    expect output.before == 3 && output.after == 14 && n == 14 && output.wrapped == 0 && small == 0;
}
