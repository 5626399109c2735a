// Shows:  a service: events from a tracepoint of the kernel, with data and state of its own.
// Needs:  root.
// Run:    ecalls service add examples/ecode/started.ec, and beside it: ecalls watch started
// Expect: a line for each program that starts, with its path, how often one of the same path has
//         started (as far as the table tells them apart), and the user.
//@ service: yes
//@ input: u8 pad[4]; s32 pid; s32 old_pid; u8 pad[4]; char filename[64]

service "started" on tracepoint "sched:sched_process_exec" {
    kind started;
    deadline 50000;
}

struct output {
    char file[64];
    u32 pid, uid, times;
};

enum { PLACES = 256 };
static u32 times[PLACES];

u64 place = 0;
for (int i = 0; i < 64 && filename[i]; i++)
    place = hash(place + filename[i]);
times[place % PLACES]++;
output.file = filename;
output.pid = event.pid;
output.uid = event.uid;
output.times = times[place % PLACES];

test "the same path is counted, another apart" {
    input.filename = "/usr/bin/true";
    event.uid = 1000;
    run;
    run;
    expect result == 1 && output.times == 2;
    expect output.file == "/usr/bin/true" && output.uid == 1000;
    input.filename = "/usr/bin/false";
    run;
    expect output.times == 1;
}
