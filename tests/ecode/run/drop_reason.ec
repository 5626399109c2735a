// drop() ends run and chain, with its reason; of a larger number the lowest eight bits.
//@ input: u32 reason
static u32 behind;
if (reason)
    drop(reason);
behind++;
test "none" {
    run;
    expect !dropped && result == 1 && behind == 1;
}
test "a reason" {
    input.reason = 3;
    run;
    expect dropped && result == 0 && behind == 0;
    expect drop(3);
}
test "cut" {
    input.reason = 0x1ff;
    run;
    expect drop(255);
}
test "reason zero" {
    input.reason = 256;
    run;
    expect dropped;
    expect drop(0);
}
