// Only what was met is asked for.
//@ input: u64 bytes
histogram(bytes);
if (bytes > 1000) {
    count(3);
    signal(40, bytes);
}
test "small" {
    input.bytes = 10;
    run;
    expect requests == 1;
    expect histogram(10);
}
test "large" {
    input.bytes = 5000;
    run;
    expect requests == 3;
    expect signal(40, input.bytes);
}
