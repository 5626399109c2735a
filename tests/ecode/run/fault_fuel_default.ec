// Endless loops end, each kind of them.
//@ input: u32 kind
static u32 rounds;
switch (kind) {
case 0:
    for (;;)
        rounds++;
case 1:
    while (true)
        rounds++;
default:
    do
        rounds++;
    while (1);
}
test "for" {
    run;
    expect fault == 2 && rounds == 4096;
}
test "while" {
    input.kind = 1;
    run;
    expect fault == 2 && rounds == 4096;
}
test "do" {
    input.kind = 2;
    run;
    expect fault == 2 && rounds == 4096;
}
