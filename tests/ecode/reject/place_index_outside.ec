// An index that can be seen to be wrong.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
u32 own[3] = { 1, 2, 3 };
return list[4] + list[-1] + own[1 + 2] + own[0x8000000000000000];
//@ error 4:13 index 4 is outside: the array has 4 elements, 0 to 3
//@ hint the first element is [0], the last [3]
//@ error 4:23 index -1 is outside: the array has 4 elements, 0 to 3
//@ hint the first element is [0], the last [3]
//@ error 4:33 index 3 is outside: the array has 3 elements, 0 to 2
//@ hint the first element is [0], the last [2]
//@ error 4:46 index 9223372036854775808 is outside: the array has 3 elements
//@ hint the first element is [0], the last [2]
