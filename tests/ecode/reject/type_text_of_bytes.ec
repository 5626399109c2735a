// A text is an array of char, not of other bytes.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
u8 a[4] = "abc";
s8 b[4] = "abc";
return a[0] + b[0] + (a == "abc") + (b == "abc");
//@ error 3:11 a text needs an array of char, not unsigned char[4]
//@ hint declare the array with the type char
