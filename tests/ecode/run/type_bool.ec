// A bool is 0 or 1, however it comes to be; read from an event, any byte but 0 is true.
//@ input: u8 raw; u64 wide
struct output {
    bool a, b;
    int sum;
    u8 stored;
};
bool t = wide;
output.a = t;
t = !t;
output.b = t;
output.sum = (raw != 0) + (bool)raw + t;
output.stored = (bool)raw;
test "two is true" {
    input.raw = 2;
    input.wide = 1ul << 40;
    run;
    expect output.a == true && !output.b && output.sum == 2 && output.stored == 1;
}
test "zero" {
    run;
    expect !output.a && output.b && output.sum == 1 && output.stored == 0;
}
