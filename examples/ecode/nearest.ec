// Shows:  the choice among the sinks of a channel by what they tell of themselves.
// Needs:  a channel whose sinks have the attributes "load" (percent) and "distance".
// Run:    ecalls ecode run examples/ecode/nearest.ec --sinks load,distance --event
//         '{"sinks": [{"id": 1, "load": 5, "distance": 9}, {"id": 2, "load": 5, "distance": 3}]}'
// Expect: both are accepted: two are wanted, and both are fresh and not too busy.
//@ sinks: load, distance

const u64 FRESH_NS = 5000000000;
const int BUSY = 80;

// The nearer a sink is, the greater is its key; what is busy or silent comes last.
best(2, age(sink) > FRESH_NS || sink.load > BUSY ? -1000000 : -sink.distance);

// Of those chosen for want of better ones, none is used.
for (s in sinks)
    if (age(s) > FRESH_NS || s.load > BUSY)
        reject(s);
