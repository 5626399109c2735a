// Tests that set sinks and the time, and expect requests.
//@ sinks: load, distance
//@ services: timer 3
for (s in sinks)
    if (age(s) < 10)
        accept(s);
signal(41, now());
if (now() > 5)
    drop(3);
test "all" {
    sinks[0].load = 1;
    sinks[3].id = 7;
    age(sinks[63]) = 20;
    now() = 6;
    run;
    expect accepted == 0b1001 && !rejected && dropped && requests == 1;
    expect signal(41, 6);
    expect drop(3);
}
