// A round over the sinks takes fuel as every loop does, and so do the keys of best().
//@ sinks: load
fuel 3;
for (s in sinks)
    accept(s);
test "three" {
    sinks[0].load = 1;
    sinks[1].load = 1;
    sinks[2].load = 1;
    run;
    expect fault == 0 && accepted == 0b111;
}
test "four" {
    sinks[0].load = 1;
    sinks[1].load = 1;
    sinks[2].load = 1;
    sinks[9].load = 1;
    run;
    expect fault == 2 && accepted == 0b111;
}
