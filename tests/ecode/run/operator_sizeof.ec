// Sizes of types and of expressions, which are not evaluated.
//@ input: u64 bytes; u8 list[3]
struct pair {
    u8 a;
    u32 b;
};
int n = 1;
return sizeof(int) + 10 * sizeof(struct pair) + 1000 * sizeof list + 10000 * sizeof(long[4]) +
        sizeof n * 0;
test "sizes" {
    run;
    expect result == 4 + 80 + 3000 + 320000;
}
