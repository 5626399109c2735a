// A reason is a small number.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
if (port == 1) drop(256);
if (port == 2) drop(-1);
drop(1.5);
//@ error 3:21 a reason is 0 to 255, not 256
//@ error 4:21 a reason is 0 to 255, not -1
//@ error 5:6 this argument must be a whole number, this is a fixed
//@ hint convert it: (long)(...)
