// Shows:  loops over nested arrays, and an output: which attributes of which resources are beyond
//         their threshold. The example of the paper (ECalls-05, section 3.3).
// Needs:  a service whose events have this format; its tests need none.
// Run:    ecalls ecode test examples/ecode/thresholds.ec
// Expect: two tests, passed.

enum { RESOURCES = 16, ATTRIBUTES = 8 };

struct metric {
    int num_attributes;
    int attribute[ATTRIBUTES];
    int threshold[ATTRIBUTES];
};

struct verdict {
    int exceeded[ATTRIBUTES];
};

struct input {
    struct metric resource[RESOURCES];
};

struct output {
    struct verdict resource[RESOURCES];
};

{
    int found = 0;
    for (int i = 0; i < RESOURCES; i++) {
        for (int j = 0; j < input.resource[i].num_attributes && j < ATTRIBUTES; j++) {
            if (input.resource[i].attribute[j] > input.resource[i].threshold[j]) {
                output.resource[i].exceeded[j] = 1;
                found++;
            }
        }
    }
    return found;
}

test "two of three" {
    input.resource[2].num_attributes = 2;
    input.resource[2].attribute = { 5, 9 };
    input.resource[2].threshold = { 5, 8 };
    input.resource[15].num_attributes = 1;
    input.resource[15].attribute[0] = 1;
    run;
    expect result == 2 && fault == 0;
    expect output.resource[2].exceeded[0] == 0;
    expect output.resource[2].exceeded[1] == 1;
    expect output.resource[15].exceeded[0] == 1;
}

test "more attributes than there can be" {
    input.resource[0].num_attributes = 9;
    input.resource[0].attribute[7] = 1;
    run;
    expect result == 1 && fault == 0;
}
