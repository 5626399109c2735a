// Attributes of a sink by name.
//@ sinks: load, distance
for (s in sinks) {
    if (s.laod > 1 || s.colour == 2) accept(s);
    reject(s.id);
}
//@ error 4:11 a sink has no attribute 'laod'
//@ hint did you mean 'load'?
//@ error 4:25 a sink has no attribute 'colour'
//@ hint known: load, distance, id
//@ error 5:12 a sink is expected here, this is unsigned long
//@ hint for (s in sinks) { ... } names them one by one
