// A const needs its value.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
const int a;
const int b[3];
return a + b[0];
//@ error 3:11 'a' is const and has no value
//@ hint write it behind '='
//@ error 4:11 'b' is const and has no value
//@ hint write it behind '='
