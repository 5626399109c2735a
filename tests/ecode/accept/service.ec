// A service with all that can be said of it; its words are names elsewhere.
//@ service: yes
//@ input: s32 pid; s32 old_pid; char filename[64]
service "exec" on tracepoint "sched:sched_process_exec" {
    kind on;
    deadline 10 * 1000;
}
struct output { char file[64]; bool first; s8 kind; u16 list[2]; };
static u32 service, deadline;
int tracepoint = pid;
output.file = filename;
output.first = service++ == 0;
output.kind = tracepoint > 3;
deadline |= 1;
return old_pid != tracepoint;
