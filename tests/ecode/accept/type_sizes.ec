// sizeof of types, variables and expressions.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct s { char a; long b; short c[3]; };
struct s v = { 1 };
return sizeof(struct s) == 24 && sizeof v.c == 6 && sizeof(int[3][2]) == 24 && sizeof(comm) == 16
    && sizeof "abc" == 4 && sizeof(port + 1) == 4 && sizeof(bytes) == 8 && v.a;
