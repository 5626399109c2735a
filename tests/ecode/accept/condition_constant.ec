// Constants that are meant as conditions or results: nothing to say.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
//@ constants: DEBUG 1, NUM 16
enum { STOP, PASS };
enum { TRACE = 1 };
const bool VERBOSE = false;
const u64 LIMIT = 1000;
enum truth { FALSE, TRUE };
u32 kind_of() { return PASS; }
bool passes() { return PASS; }
if (VERBOSE && port == 22) count(1);
if (port == 22 || VERBOSE || DEBUG) count(2);
if (port != 22 && DEBUG && TRACE || !TRACE) count(3);
if (LIMIT && bytes > LIMIT || !LIMIT || NUM) return STOP;
while (true) if (kind_of() > 3) break;
do count(4); while (0);
while (TRUE) if (passes() || FALSE) break;
if (1 || level) return port == 3 ? PASS : STOP;
return PASS;
