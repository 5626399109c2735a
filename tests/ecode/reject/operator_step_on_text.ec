// Steps work on numbers.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct output { char name[4]; };
output.name++;
output.name += 1;
//@ error 4:1 this works on numbers, 'char[4]' is none
//@ hint name one of its elements or fields
//@ error 5:13 this works on numbers, 'char[4]' is none
//@ hint name one of its elements or fields
