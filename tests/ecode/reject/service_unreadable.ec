// Fields that are there, and cannot be read.
//@ service: yes
//@ input: u64 bytes
//@ unreadable: data its length differs, addr it is not aligned
service "a" on tracepoint "x:y";
return data[0] + input.addr + event.data;
//@ error 6:8 the field 'data' cannot be read
//@ hint its length differs
//@ error 6:24 the field 'addr' cannot be read
//@ hint it is not aligned
