// What the event tells of itself is not written.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
event.pid = 1;
event.time += 1;
event.kind++;
//@ error 3:1 what the event tells of itself cannot be written
//@ hint compute with a variable of your own; in a test it can be set before 'run;'
//@ error 4:1 what the event tells of itself cannot be written
//@ hint compute with a variable of your own; in a test it can be set before 'run;'
//@ error 5:1 what the event tells of itself cannot be written
//@ hint compute with a variable of your own; in a test it can be set before 'run;'
