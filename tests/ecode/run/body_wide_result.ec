// The result is a long, whatever is returned.
//@ input: u64 bytes; u8 flags; s16 level
if (flags == 1)
    return bytes;
if (flags == 2)
    return level;
if (flags == 3)
    return 2.75;
return flags == 4;
test "unsigned long" {
    input.flags = 1;
    input.bytes = 0x8000000000000000;
    run;
    expect result == (long)0x8000000000000000;
}
test "short" {
    input.flags = 2;
    input.level = -5;
    run;
    expect result == -5;
}
test "fixed is cut" {
    input.flags = 3;
    run;
    expect result == 2;
}
test "bool" {
    input.flags = 4;
    run;
    expect result == 1;
}
