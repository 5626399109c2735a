// Words of a head that are missing; the rest is read all the same.
//@ service: yes
service large on tracepoint "sched:sched_switch";
service "large" at tracepoint "sched:sched_switch";
service "large" on tracepoint;
service "large" on tracepoint "sched:sched_switch" { kinds a; kind; deadline; }
bytes > 1000
//@ error 3:9 expected the service's name in quotes, found 'large'
//@ hint service "NAME" on tracepoint "CATEGORY:NAME";
//@ error 4:17 expected 'on', found 'at'
//@ hint service "NAME" on tracepoint "CATEGORY:NAME";
//@ error 5:30 expected the tracepoint's name in quotes, found ';'
//@ hint service "NAME" on tracepoint "CATEGORY:NAME";
//@ error 6:54 expected 'kind' or 'deadline', found 'kinds'
//@ hint a service has 'kind NAME;' and 'deadline US;'
//@ error 6:67 expected the name of the kind, found ';'
//@ error 6:77 expected an expression, found ';'
//@ error 7:1 'bytes' is not declared
