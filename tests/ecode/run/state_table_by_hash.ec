// A table by hash, larger than a page.
//@ input: u32 pid
struct entry {
    u32 pid, count;
};
static struct entry table[600];
u64 at = hash(pid) % 600;
if (table[at].pid != pid) {
    table[at].pid = pid;
    table[at].count = 0;
}
return ++table[at].count;
test "two processes" {
    input.pid = 10;
    run;
    run;
    run;
    expect result == 3;
    input.pid = 11;
    run;
    expect result == 1;
    input.pid = 10;
    run;
    expect result == 4;
}
