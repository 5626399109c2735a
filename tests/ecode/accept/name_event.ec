// What every event has.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
u64 sum = event.time + event.deadline + event.id;
sum += event.service + event.kind + event.pid + event.tid + event.uid + event.cpu;
return sum + event.type + event.priority + event.size > 0 && event.time_left > 1000;
