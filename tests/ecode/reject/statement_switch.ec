// Labels are constants, and each stands once.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
switch (port) {
case 1: return 0;
case 2:
case 1: return 0;
case flags: return 0;
default: break;
default: break;
}
switch (1.5) { case 1: return 1; }
switch (comm) { case 1: return 1; }
//@ error 6:6 a second label for 1
//@ hint only one of them can be met: remove the other
//@ error 7:6 a label must be a constant
//@ hint it may be computed from numbers, enums, sizeof and const scalars
//@ error 9:1 a second 'default'
//@ hint only one of them can be met: remove the other
//@ error 11:9 what a switch compares must be a whole number, this is a fixed
//@ hint convert it: (long)(...)
//@ error 12:9 a number is needed, this is char[16]
//@ hint texts can be compared: ==, !=, prefix(a, b), length(a)
