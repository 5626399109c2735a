// A kind of the service, misspelled.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
//@ kinds: OPENED, CLOSED
return event.kind == OPEND;
//@ error 4:22 'OPEND' is not declared
//@ hint did you mean 'OPENED'?
