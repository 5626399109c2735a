// The shortest service: each time is an event.
//@ service: yes
service "switches" on tracepoint "sched:sched_switch";
1
