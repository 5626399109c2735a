// A text may repeat what the service says of the input.
//@ input: u64 bytes; u16 port
struct input { u64 bytes; u16 port; };
return input.port;
