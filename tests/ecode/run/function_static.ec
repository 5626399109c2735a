// A static of a function, beside one of the same name outside of it.
static u32 n = 100;
u32 ticket() {
    static u32 n = 7;
    return n++;
}
n += ticket();
n += ticket();
return n;
test "two of them" {
    run;
    expect result == 115;
    run;
    expect result == 115 + 9 + 10;
}
