// What an index was in front of a block does not matter if the block has written it anyway.
const u64 table[3] = { 10, 20, 30 };
static u64 seen[2] = { 0, 3 };
bool which = seen[0];
for (int i = 0; i < event.pid; i++)
    which = seen[1];
which = seen[0] == event.pid;
u64 first = which;
if ((which = seen[1]) && seen[0])
    seen[0]++;
return table[(unsigned)(which) % 3] + first;
test "index" {
    event.pid = 2;
    run;
    expect result == 20;
}
