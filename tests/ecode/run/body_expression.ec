// A body that is one expression: its value is the result.
//@ input: u64 bytes; s16 level
bytes * 2 + level
test "computed" {
    input.bytes = 20;
    input.level = -3;
    run;
    expect result == 37;
}
test "zero ends the chain" {
    run;
    expect result == 0 && fault == 0;
}
