// What a test sets of sinks and of the time.
//@ sinks: load, distance
for (s in sinks)
    accept(s);
test "sets" {
    sinks[0].load = now();
    sinks[64].load = 1;
    sinks[-1].load = 1;
    sinks[event.pid].load = 1;
    sinks[1].laod = 1;
    sinks[1] = 1;
    sinks = 1;
    age(sinks[0]) = { 1 };
    now() = event.time;
    run;
    expect accepted = 1;
    expect sinks[0].load == 1;
}
//@ error 6:21 a test gives constants
//@ hint a number, an enum's value, a text, or what is computed of those
//@ error 7:11 sinks are 0 to 63, not 64
//@ error 8:11 sinks are 0 to 63, not -1
//@ error 9:11 a test gives constants
//@ hint a number, an enum's value, a text, or what is computed of those
//@ error 10:14 a sink has no attribute 'laod'
//@ hint did you mean 'load'?
//@ error 11:5 the sinks can only be looked at one by one
//@ hint for (s in sinks) { ... }
//@ error 13:21 an age has one value
//@ hint write it without braces
//@ error 14:13 a test gives constants
//@ hint a number, an enum's value, a text, or what is computed of those
//@ error 16:12 'accepted' is what the run gave
//@ hint an expectation only looks at it
