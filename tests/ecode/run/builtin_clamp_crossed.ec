// clamp with bounds that cross: min(max(x, low), high).
//@ input: s32 low; s32 high
return clamp(5, low, high);
test "crossed" {
    input.low = 9;
    input.high = 2;
    run;
    expect result == 2;
}
test "within" {
    input.low = 1;
    input.high = 8;
    run;
    expect result == 5;
}
