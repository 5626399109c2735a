// A struct cannot contain itself.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct node { int value; struct node next; };
return 1;
//@ error 3:26 struct 'node' would contain itself
//@ hint keep the number of an element of an array instead
