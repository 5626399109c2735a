// A program without output cannot name it.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
output.x = 1;
//@ error 3:1 there is no output here
//@ hint declare it: struct output { ... };
