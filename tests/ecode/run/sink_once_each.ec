// A sink gets the same key once in a while.
//@ sinks: load
//@ input: u32 key
for (s in sinks)
    if (once(s.id << 32 | key, 1000))
        accept(s);
    else
        reject(s);
test "twice" {
    input.key = 4;
    sinks[0].load = 0;
    sinks[1].load = 0;
    run;
    expect accepted == 0b11 && rejected == 0;
    sinks[2].load = 0;
    run;
    expect accepted == 0b100 && rejected == 0b11;
    input.key = 5;
    run;
    expect accepted == 0b111;
}
