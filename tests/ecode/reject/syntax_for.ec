// The parts of 'for'.
//@ input: u64 bytes; u16 port
//@ sinks: load
u64 sum = 0;
for (int i = 0, i < 3; i++) sum += i;
for (int i = 0; i < 3, i++) sum += i;
for (s of sinks) accept(s);
for (s in channels) accept(s);
return sum + unknown;
//@ error 5:19 expected ';', found '<'
//@ hint a declaration ends with ';' before a condition
//@ error 6:27 expected ';', found ')'
//@ hint for (FIRST; CONDITION; NEXT)
//@ error 7:8 expected 'in', found 'of'
//@ hint for (s in sinks)
//@ error 8:11 expected 'sinks', found 'channels'
//@ hint 'for (s in sinks)' goes through the sinks of the channel
//@ error 9:14 'unknown' is not declared
//@ hint the event's data has bytes, port
