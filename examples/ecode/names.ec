// Shows:  strings: compared, their beginning, their length.
// Needs:  the service task.
// Run:    ecalls ecode test examples/ecode/names.ec
// Expect: its tests pass. It lets through shells and interpreters that start, and programs whose
//         names are a single letter.

struct input {
    u32 pid, tid, parent, child, code, thread;
    char comm[16];
};

enum { FORK, EXEC, EXIT };

if (event.kind != EXEC)
    return 0;
if (comm == "sh" || comm == "bash" || comm == "dash")
    return 1;
return prefix(comm, "python") || prefix(comm, "perl") || length(comm) == 1;

test "a shell" {
    event.kind = EXEC;
    input.comm = "bash";
    run;
    expect result == 1;
}

test "a version of an interpreter" {
    event.kind = EXEC;
    input.comm = "python3.12";
    run;
    expect result == 1;
}

test "something else" {
    event.kind = EXEC;
    input.comm = "bashful";
    run;
    expect result == 0;
    input.comm = "x";
    run;
    expect result == 1;
    event.kind = EXIT;
    run;
    expect result == 0;
}
