// The name of a sink ends with its loop, and that of best with its key.
//@ sinks: load, distance
for (s in sinks) accept(s);
best(1, sink.load);
reject(s);
reject(sink);
//@ error 5:8 's' is not declared
//@ error 6:8 'sink' is not declared
