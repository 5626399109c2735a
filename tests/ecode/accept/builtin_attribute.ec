// Attributes of the channel.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
//@ attributes: load, jobs
return attr("load") > 80 && attr("jobs") != 0;
