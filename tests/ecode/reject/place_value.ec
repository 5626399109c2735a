// What is no place is not written.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
port + 1 = 2;
5 = 6;
now() = 1;
"a" = 2;
-port++;
++5;
//@ error 3:1 this cannot be written
//@ hint a variable, a field or an element is expected here
//@ error 4:1 this cannot be written
//@ hint a variable, a field or an element is expected here
//@ error 5:1 this cannot be written
//@ hint a variable, a field or an element is expected here
//@ error 6:1 this cannot be written
//@ hint a variable, a field or an element is expected here
//@ error 7:2 the input cannot be written: others read it too
//@ hint write into output, or into a variable of your own
//@ error 8:3 this cannot be written
//@ hint a variable, a field or an element is expected here
