// As many arguments as there must be.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return min(1) + max(1, 2, 3) + clamp(1, 2) + abs() + now(1) + hash();
//@ error 3:8 'min' takes 2 arguments, 1 given
//@ hint it is min(a, b)
//@ error 3:17 'max' takes 2 arguments, 3 given
//@ hint it is max(a, b)
//@ error 3:32 'clamp' takes 3 arguments, 2 given
//@ hint it is clamp(value, low, high)
//@ error 3:46 'abs' takes 1 argument, 0 given
//@ hint it is abs(value)
//@ error 3:54 'now' takes no arguments, 1 given
//@ hint it is now(): ns on the clock of events
//@ error 3:63 'hash' takes 1 argument, 0 given
//@ hint it is hash(number)
