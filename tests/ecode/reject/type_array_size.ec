// How many elements an array has.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int none[0];
int many[5000];
int negative[-1];
int what[port];
int unknown[];
int half[1.5];
return 1;
//@ error 3:10 an array has 1 to 4096 elements (ARRAY_ELEMENTS)
//@ hint what has no element is left out
//@ error 4:10 an array has 1 to 4096 elements (ARRAY_ELEMENTS)
//@ hint more elements are an array of arrays: [2][2500]
//@ error 5:14 an array has 1 to 4096 elements (ARRAY_ELEMENTS)
//@ hint what has no element is left out
//@ error 6:10 the number of elements must be a constant
//@ hint it may be computed from numbers, enums, sizeof and const scalars
//@ error 7:5 how many elements has 'unknown'?
//@ hint write a number into []
//@ error 8:10 the number of elements must be a whole number, this is a fixed
//@ hint convert it: (long)(...)
