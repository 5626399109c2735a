// Empty statements.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
;
for (int i = 0; i < 3; i++) ;
{ }
return 1;
