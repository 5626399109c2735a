// How old what a sink told is.
//@ sinks: load
for (s in sinks)
    if (age(s) > 1000)
        reject(s);
    else
        accept(s);
test "ages" {
    age(sinks[0]) = 1000;
    age(sinks[1]) = 1001;
    age(sinks[5]) = 0;
    age(sinks[63]) = 900000000000;
    run;
    expect accepted == 0b100001 && rejected == 1ul << 63 | 0b10;
}
