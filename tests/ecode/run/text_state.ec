// A string as state: is it the one from before?
//@ input: char comm[16]
static char former[16];
bool again = former == comm;
former = comm;
return again;
test "twice" {
    input.comm = "a";
    run;
    expect result == 0;
    run;
    expect result == 1;
    input.comm = "b";
    run;
    expect result == 0 && former == "b";
}
