// An input of the text must be that of the service.
//@ input: u64 bytes; u16 port
struct input { u32 bytes; };
return input.bytes;
//@ error 3:8 this input is not what the service tells
//@ hint leave it out, or write: u64 bytes; u16 port
