// A sink is no number.
//@ sinks: load, distance
for (s in sinks) {
    int n = s;
    if (s > 1 || s == s) n = age(1);
    accept(n);
    accept("s");
}
//@ error 4:13 a number is needed, this is sink
//@ hint a sink has numbers: s.id, age(s), and its attributes
//@ error 5:9 a number is needed, this is sink
//@ hint a sink has numbers: s.id, age(s), and its attributes
//@ error 5:18 a number is needed, this is sink
//@ hint a sink has numbers: s.id, age(s), and its attributes
//@ error 5:23 a number is needed, this is sink
//@ hint a sink has numbers: s.id, age(s), and its attributes
//@ error 5:34 a sink is expected here, this is int
//@ hint for (s in sinks) { ... } names them one by one
//@ error 7:12 a sink is expected here, this is a text
//@ hint for (s in sinks) { ... } names them one by one
