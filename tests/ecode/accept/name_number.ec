// Numbers of the kernel by their C names, unless the text means something else by them.
//@ input: u16 family; u32 state
enum states { TCP_CLOSE = 70 };
family == AF_INET6 && state == TCP_LISTEN || state == TCP_CLOSE
