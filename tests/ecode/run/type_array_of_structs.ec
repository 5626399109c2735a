// Elements that are structs, in input, state and output.
struct sample {
    u16 port;
    u32 bytes;
};
struct input {
    struct sample samples[4];
    u8 count;
};
struct output {
    struct sample best;
    u32 totals[2];
};
static struct sample last;
for (u32 i = 0; i < min(input.count, 4); i++) {
    if (input.samples[i].bytes > output.best.bytes)
        output.best = input.samples[i];
    output.totals[input.samples[i].port & 1] += input.samples[i].bytes;
}
last = output.best;
test "best of three" {
    input.samples = { { 80, 5 }, { 443, 9 }, { 22, 8 }, { 99, 100 } };
    input.count = 3;
    run;
    expect output.best.port == 443 && output.best.bytes == 9;
    expect output.totals[0] == 13 && output.totals[1] == 9 && last.port == 443;
}
