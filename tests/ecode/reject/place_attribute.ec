// Attributes are not written.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
//@ attributes: load, jobs
attr("load") = 4;
//@ error 4:1 an attribute of the channel cannot be written from here
//@ hint who reads the channel sets it; what the program keeps is a static
