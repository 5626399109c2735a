// Two tests of one name.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return port;
test "a" { run; expect result == 0; }
test "a" { run; expect result == 0; }
//@ error 5:1 a second test "a"
//@ hint choose another name
