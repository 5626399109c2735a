// Shows:  load balancing: the hosts of a cluster that have the least to do get the event.
// Needs:  a channel whose sinks tell what managers tell (ecalls-cluster(7)).
// Run:    ecalls ecode test examples/ecode/least_busy.ec --sinks \
//         busy,memory_mib,net_kib,disk_kib,waiting,cpu_free,job_free,address
// Expect: its tests pass. The best host is everybody's best host until it tells again, so several
//         get the event, and the source cancels the others when one begins.
//@ sinks: busy, memory_mib, net_kib, disk_kib, waiting, cpu_free, job_free, address

const u64 SILENT_NS = 5000000000;

// Fewer requests that wait, then less busy; who is silent comes last.
best(3, age(sink) > SILENT_NS ? -1000000000 : -(sink.waiting * 1000 + sink.busy));

// Of those chosen for want of better ones, none is used.
for (s in sinks)
    if (age(s) > SILENT_NS)
        reject(s);

test "three of five" {
    sinks[0].waiting = 2;
    sinks[1].busy = 900;
    sinks[2].busy = 100;
    sinks[3].waiting = 1;
    sinks[4].waiting = 3;
    run;
    expect accepted == 0b01110;
}

test "who is silent gets nothing, even if there are too few" {
    sinks[0].waiting = 7;
    sinks[1].waiting = 0;
    age(sinks[1]) = 6000000000;
    run;
    expect accepted == 0b01;
}
