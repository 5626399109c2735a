// A field of the event without the event.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return pid == 1;
//@ error 3:8 'pid' is not declared
//@ hint did you mean event.pid?
