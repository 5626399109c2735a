// Fields of the input: by input, by event, and bare.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return input.bytes + event.port + flags > 0;
