// All 64 of them, and a loop within the loop.
//@ sinks: load
u32 pairs = 0;
for (a in sinks)
    for (b in sinks)
        if (a.id < b.id && a.load == b.load)
            pairs++;
return pairs;
test "ends of the table" {
    sinks[0].load = 1;
    sinks[31].load = 2;
    sinks[32].load = 1;
    sinks[63].load = 1;
    run;
    expect result == 3;
}
