// The n whose key is greatest; of equal ones the first.
//@ sinks: load, distance
//@ input: s32 n
best(n, -sink.load);
test "two of four" {
    input.n = 2;
    sinks[0].load = 9;
    sinks[1].load = 3;
    sinks[4].load = 3;
    sinks[5].load = 3;
    run;
    expect accepted == 0b10010 && rejected == 0b100001;
}
test "more than there are" {
    input.n = 9;
    sinks[3].load = 1;
    sinks[4].load = 1;
    run;
    expect accepted == 0b11000 && rejected == 0;
}
test "none" {
    sinks[3].load = 1;
    run;
    expect accepted == 0 && rejected == 0b1000;
}
test "a negative number is none" {
    input.n = -1;
    sinks[3].load = 1;
    run;
    expect accepted == 0;
}
