// Falls through, default in the middle, several labels, negative and wide ones.
//@ input: s64 a
struct output {
    u32 way;
};
switch (a) {
case 1:
    output.way += 1;
case 2:
    output.way += 10;
    break;
default:
    output.way += 100;
case -5:
case 0x7fffffffffffffff:
    output.way += 1000;
    break;
case 9:
    return 9;
}
output.way += 10000;
return 2;
test "first falls into second" {
    input.a = 1;
    run;
    expect output.way == 10011;
}
test "second" {
    input.a = 2;
    run;
    expect output.way == 10010;
}
test "default falls on" {
    input.a = 3;
    run;
    expect output.way == 11100;
}
test "negative" {
    input.a = -5;
    run;
    expect output.way == 11000;
}
test "largest" {
    input.a = 0x7fffffffffffffff;
    run;
    expect output.way == 11000;
}
test "leaves the body" {
    input.a = 9;
    run;
    expect output.way == 0 && result == 9;
}
