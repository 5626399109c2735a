// length(): up to the first 0, or all of the array.
//@ input: char comm[16]; char four[4]
return length(comm) * 100 + length(four) * 10 + length("abc");
test "some" {
    input.comm = "bash";
    input.four = "full";
    run;
    expect result == 443;
}
test "none" {
    run;
    expect result == 3;
}
