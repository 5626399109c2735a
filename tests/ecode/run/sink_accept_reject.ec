// What is said last counts; who is not named stays open.
//@ sinks: load, distance
for (s in sinks) {
    if (s.load > 10)
        reject(s);
    if (s.load > 20)
        accept(s);
    if (s.distance)
        reject(s);
}
test "each" {
    sinks[0].load = 5;
    sinks[1].load = 15;
    sinks[2].load = 25;
    sinks[3].load = 25;
    sinks[3].distance = 1;
    run;
    expect accepted == 0b0100 && rejected == 0b1010;
}
