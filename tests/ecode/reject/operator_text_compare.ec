// Texts are compared with ==, != and prefix.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return comm < "bash" || "a" == "b" || comm == 3 || list == "a";
//@ error 3:13 '<' does not work on texts
//@ hint texts have ==, !=, prefix(a, b) and length(a)
//@ error 3:32 an array of char is expected here, not a text in quotes
//@ hint name what is looked at: a field or a variable
//@ error 3:47 an array of char is expected here, this is int
//@ hint strings are arrays of char; numbers are compared without quotes
//@ error 3:52 an array of char is expected here, this is unsigned int[4]
//@ hint strings are arrays of char; numbers are compared without quotes
