// best takes a number, and a whole number as the key.
//@ sinks: load, distance
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
best(1, sink.load * 0.5);
int a = best(1, 2);
best(comm, sink.id);
return a;
//@ error 4:9 the key must be a whole number, this is a fixed
//@ hint convert it: (long)(...)
//@ error 5:9 this gives no value
//@ hint write it as a statement of its own
//@ error 6:6 a number is needed, this is char[16]
//@ hint texts can be compared: ==, !=, prefix(a, b), length(a)
