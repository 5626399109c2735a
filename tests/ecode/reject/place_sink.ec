// A sink is not written, nor are its attributes.
//@ sinks: load, distance
for (s in sinks) { s = 1; s.load = 4; s++; }
//@ error 3:20 's' is the sink that the loop has come to
//@ hint sinks are chosen with accept(s) and reject(s)
//@ error 3:27 the attributes of a sink cannot be written
//@ hint the sink itself tells them; here it is accepted or rejected
//@ error 3:39 's' is the sink that the loop has come to
//@ hint sinks are chosen with accept(s) and reject(s)
