// In a function, in a loop: the whole run ends.
//@ input: u32 n
static u32 seen;
int table_at(u32 at) {
    static int table[4];
    return table[at];
}
for (u32 i = 0; i < n; i++) {
    table_at(i);
    seen++;
}
return 0;
test "four" {
    input.n = 4;
    run;
    expect fault == 0 && seen == 4;
}
test "five" {
    input.n = 5;
    run;
    expect fault == 1 && seen == 4 && result == 1;
}
