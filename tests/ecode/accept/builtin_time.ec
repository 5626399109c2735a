// Time and chance.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return now() - event.time < 1000000 && random() % 100 < 5;
