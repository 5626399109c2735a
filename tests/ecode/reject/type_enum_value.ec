// Values of an enum are constants of type int.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
enum a { ONE = 1, BIG = 5000000000, NEXT, BAD = bytes, LAST = 3 };
return ONE + BIG + NEXT + BAD + LAST;
//@ error 3:25 an enum's value is an int, 5000000000 does not fit
//@ hint a const may be larger: const u64 NAME = ...;
//@ error 3:49 an enum's value must be a constant
//@ hint it may be computed from numbers, enums, sizeof and const scalars
