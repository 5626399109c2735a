// A service: its result, its output and its state, over a tracepoint's record.
//@ service: yes
//@ input: u8 pad[4]; s32 pid; s32 old_pid; u8 pad[4]; char filename[64]
service "exec" on tracepoint "sched:sched_process_exec" {
    kind started;
    deadline 50000;
}
struct task { s32 former; };
struct output { char file[64]; struct task task; u32 number; };
static u32 number;
if (!prefix(filename, "/usr/bin/"))
    return 0;
output.file = filename;
output.task.former = old_pid;
output.number = ++number;

test "others are not told, and not counted" {
    input.filename = "/bin/true";
    run;
    expect result == 0 && number == 0;
    input.filename = "/usr/bin/true";
    input.old_pid = -7;
    run;
    expect result == 1 && number == 1;
    expect output.file == "/usr/bin/true" && output.task.former == -7 && output.number == 1;
}
