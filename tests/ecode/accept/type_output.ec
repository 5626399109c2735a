// An output, read and written.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct output { u64 sum; u8 seen[4]; char name[16]; };
output.sum += bytes;
output.seen[port & 3] = 1;
output.name = comm;
return output.sum;
