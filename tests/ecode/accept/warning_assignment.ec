// An assignment as a condition.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int a = 1;
if (a = port) return 0;
while (a = level) break;
return a && (a = 2);
//@ warning 4:5 an assignment as a condition
//@ hint write == to compare, or (...) != 0 if the assignment is meant
//@ warning 5:8 an assignment as a condition
//@ hint write == to compare, or (...) != 0 if the assignment is meant
