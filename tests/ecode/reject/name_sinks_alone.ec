// The sinks can only be looked at one by one.
//@ sinks: load, distance
return sinks > 1;
//@ error 3:8 the sinks can only be looked at one by one
//@ hint for (s in sinks) { ... }
