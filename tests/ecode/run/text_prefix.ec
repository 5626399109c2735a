// prefix() of a text and of another string.
//@ input: char comm[16]; char with[6]
return prefix(comm, "kwork") + 2 * prefix(comm, with) + 4 * prefix(with, "") +
        8 * prefix(comm, "k");
test "worker" {
    input.comm = "kworker/0";
    input.with = "kworke";
    run;
    expect result == 15;
}
test "too short" {
    input.comm = "kwor";
    input.with = "kworke";
    run;
    expect result == 12;
}
test "empty" {
    run;
    expect result == 6;
}
