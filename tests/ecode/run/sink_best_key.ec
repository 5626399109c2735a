// Keys with everything in them: age, id, min, functions; and what best() says can be changed.
//@ sinks: load, distance
long key(long load, u64 id) {
    return load * 10 + id;
}
best(1, key(min(sink.load, 5), sink.id) - age(sink) / 1000);
for (s in sinks)
    if (s.id == 2)
        accept(s);
test "keys" {
    sinks[0].load = 50;
    sinks[1].load = 4;
    sinks[1].id = 12;
    sinks[2].load = 5;
    age(sinks[0]) = 4000;
    run;
    expect accepted == 0b110 && rejected == 0b001;
}
