// Shows:  a table, a function and a hash: every hundredth event of each process.
// Needs:  any service.
// Run:    ecalls ecode test examples/ecode/per_process.ec
// Expect: its test passes. It lets through each hundredth event of a process, as long as no more
//         than 64 are active.

enum { SLOTS = 64, EACH = 100 };

struct slot {
    u32 pid, events;
};

static struct slot table[SLOTS];

// Where a process is, or can be: at its hash or behind it. The last one is shared, if need be.
u32 place_of(u32 pid) {
    u32 at = hash(pid) % SLOTS;
    for (int tries = 1; tries < SLOTS; tries++) {
        if (table[at].pid == pid || table[at].pid == 0)
            break;
        at = (at + 1) % SLOTS;
    }
    return at;
}

u32 at = place_of(event.pid);
table[at].pid = event.pid;
return ++table[at].events % EACH == 0;

test "each process is counted for itself" {
    event.pid = 10;
    run;
    event.pid = 11;
    run;
    run;
    expect result == 0 && fault == 0;
    expect table[place_of(10)].events == 1;
    expect table[place_of(11)].events == 2;
}
