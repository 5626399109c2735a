// A field that the event has not.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return event.deadlin > 0 && event.colour == 1;
//@ error 3:14 the event has no field 'deadlin'
//@ hint did you mean 'deadline'?
//@ error 3:35 the event has no field 'colour'
//@ hint known: service, kind, time, deadline, time_left, id, pid, tid, ...
