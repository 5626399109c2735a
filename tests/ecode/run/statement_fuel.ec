// As much fuel as the text says: the last iteration that fits is done, the next one is not.
//@ input: u32 n
fuel 10;
static u32 done;
for (u32 i = 0; i < n; i++)
    done++;
test "just enough" {
    input.n = 10;
    run;
    expect fault == 0 && done == 10;
}
test "one too many" {
    input.n = 11;
    run;
    expect fault == 2 && done == 10 && result == 1;
}
test "each run has its own" {
    input.n = 7;
    run;
    run;
    expect fault == 0 && done == 14;
}
