// Gaps in a format may share their name.
//@ input: u8 a; u8 pad[3]; u32 b; u32 pad
return a + b;
