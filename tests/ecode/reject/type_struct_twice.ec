// A struct and an enum of a name that is taken.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct a { int x; };
struct a { int y; };
enum b { ONE };
enum b { TWO };
return ONE + TWO;
//@ error 4:8 a second struct 'a'
//@ hint choose another name
//@ error 6:6 a second enum 'b'
//@ hint choose another name, or none
