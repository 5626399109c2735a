// A filter as `ecalls watch --where` has it: large packets to one port, of one program.
struct input { u64 bytes; u16 port; char comm[16]; };
bytes > 1000 && (port == 80 || port == 443) && comm == "lighttpd"
