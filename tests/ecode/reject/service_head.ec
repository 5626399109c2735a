// What may be wrong about a head.
//@ service: yes
//@ denied: raise this program raises its own event
service "two words" on tracepoint "sched:sched_switch" { kind a; kind b; deadline 0; deadline 1; }
service "b" on tracepoint "sched:sched_switch";
struct output { fixed a; u64 b[269]; };
raise("timer");
attr("load");
//@ error 4:9 a service's name has 1 to 31 bytes, and no blanks
//@ error 4:71 kind is given twice
//@ error 4:83 a deadline is 1 to 3600000000 us, not 0
//@ error 4:95 deadline is given twice
//@ error 5:9 a second service
//@ error 6:8 an event has at most 2152 bytes of data, output has 2160
//@ error 7:1 not allowed here: this program raises its own event
//@ error 8:6 there is no attribute 'load'
//@ hint whoever subscribes names the attributes of its channel
