// A text is no number.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int a = "text";
return "yes";
//@ error 3:9 a text is no number
//@ hint texts can be compared with (==, !=, prefix) and assigned to arrays of char
//@ error 4:8 a text is no number
//@ hint texts can be compared with (==, !=, prefix) and assigned to arrays of char
