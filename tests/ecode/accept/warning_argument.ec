// Arguments that mean something else.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
defer(-1);
return abs(port * 2u) + abs(level);
//@ warning 3:7 -1 has no meaning here: it becomes a large number
//@ warning 4:8 abs of what is never negative
