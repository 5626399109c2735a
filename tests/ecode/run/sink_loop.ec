// Over the sinks that exist, in order; break and continue.
//@ sinks: load, distance
struct output {
    u64 ids;
    u32 seen;
};
for (s in sinks) {
    if (s.load < 0)
        continue;
    if (s.id == 99)
        break;
    output.ids = output.ids * 100 + s.id;
    output.seen++;
}
test "none" {
    run;
    expect output.seen == 0 && accepted == 0 && rejected == 0;
}
test "some" {
    sinks[2].load = 5;
    sinks[7].id = 71;
    sinks[9].load = -1;
    sinks[63].distance = 4;
    run;
    expect output.seen == 3 && output.ids == 27163;
}
test "until" {
    sinks[1].id = 11;
    sinks[2].id = 99;
    sinks[3].id = 33;
    run;
    expect output.ids == 11;
}
