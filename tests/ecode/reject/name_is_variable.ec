// A variable that is called, and a function that there is not.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int a = 1;
return a(2) + mni(1, 2) + whatever();
//@ error 4:8 'a' is no function
//@ hint a number and a variable stand without parentheses
//@ error 4:15 there is no function 'mni'
//@ hint did you mean 'min'?
//@ error 4:27 there is no function 'whatever'
//@ hint define it: u64 whatever(u64 x) { ... }
