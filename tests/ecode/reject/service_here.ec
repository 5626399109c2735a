// A handler is no service.
//@ input: u64 bytes
service "large" on tracepoint "sched:sched_switch";
bytes > 1000
//@ error 3:9 a service is not declared here: this text is for the events of one
//@ hint ecalls service add FILE adds a service
