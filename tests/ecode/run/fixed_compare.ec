// Compared with each other and with whole numbers.
//@ input: s32 a
fixed half = a / 2.0;
return (half > 1) + 2 * (half == 1.5) + 4 * (half < a) + 8 * (half >= 2) + 16 * (half != 0) +
        32 * !half;
test "one and a half" {
    input.a = 3;
    run;
    expect result == 1 + 2 + 4 + 16;
}
test "zero" {
    run;
    expect result == 32;
}
test "negative" {
    input.a = -4;
    run;
    expect result == 16;
}
