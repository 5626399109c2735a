// Arguments that mean something else.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
defer(-1);
signal(10, 1);
count(64);
return abs(port * 2u) + abs(level);
//@ warning 3:7 -1 has no meaning here: it becomes a large number
//@ warning 4:8 a real-time signal is 34 to 64, not 10
//@ hint it is counted as not done
//@ warning 5:7 a counter is 0 to 63, not 64
//@ hint it is counted as not done
//@ warning 6:8 abs of what is never negative
