// A text must fit.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
char a[4] = "abcde";
a = "12345";
u8 b[4] = "abc";
a = comm;
return a[0] + b[0];
//@ error 3:13 the text has 5 characters, the array 4
//@ hint char NAME[5] holds it
//@ error 5:11 a text needs an array of char, not unsigned char[4]
//@ hint declare the array with the type char
