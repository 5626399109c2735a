// Functions call functions, before and after their definitions; parameters are theirs alone.
int twice(int x) {
    x *= 2;
    return x;
}
int sum_of(int n) {
    int sum = 0;
    for (int i = 1; i <= n; i++)
        sum += later(i);
    return sum;
}
int later(int x) {
    return twice(x) + 1;
}
int n = 4;
return sum_of(n) * 10 + n;
test "in each other" {
    run;
    expect result == 244;
}
