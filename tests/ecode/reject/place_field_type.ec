// What has fields is a struct.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return port.x + list.y + list[0].z + (port + 1).q;
//@ error 3:13 unsigned short has no fields
//@ hint it is a number: it stands for itself
//@ error 3:22 unsigned int[4] has no fields
//@ hint name one of its elements: [0]
//@ error 3:34 unsigned int has no fields
//@ hint it is a number: it stands for itself
//@ error 3:38 int has no fields
//@ hint it is a number: it stands for itself
