// Labels are of the value's type: of an unsigned char promoted to int, of an unsigned int.
//@ input: u8 small; u32 wide
struct output {
    int a, b;
};
switch (small) {
case 255:
    output.a = 1;
    break;
case 0:
    output.a = 2;
    break;
}
switch (wide) {
case 0xffffffff:
    output.b = 1;
    break;
default:
    output.b = 2;
}
test "all ones" {
    input.small = 255;
    input.wide = 0xffffffff;
    run;
    expect output.a == 1 && output.b == 1;
}
test "zeros" {
    run;
    expect output.a == 2 && output.b == 2;
}
test "none" {
    input.small = 9;
    run;
    expect output.a == 0;
}
