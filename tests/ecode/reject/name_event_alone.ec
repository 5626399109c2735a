// The event itself is no value.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
u64 e = event; return e > 0;
//@ error 3:9 the event itself is no value
//@ hint name a field: event.pid, event.time, ...
