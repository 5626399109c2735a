// What is done after the run.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
//@ services: timer 3, socket 4
signal(40, bytes);
raise("timer");
raise("timer", bytes, -1, port);
defer(1000);
count(1);
count(2, bytes);
histogram(bytes);
if (port == 22) drop(7);
