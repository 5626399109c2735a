// The example of the paper (ECalls-05, section 3.3): which attributes of which resources are beyond
// their thresholds; 16 resources of 8 attributes.
//@ constants: NUM_RESOURCES 16
struct metric {
    int num_attributes;
    int attribute[8];
    int threshold[8];
};
struct verdict {
    int exceeded[8];
};
struct input {
    struct metric resource[16];
};
struct output {
    struct verdict resource[16];
};
{
    int i;
    int j;
    for (i = 0; i < NUM_RESOURCES; i++) {
        for (j = 0; j < input.resource[i].num_attributes; j++) {
            if (input.resource[i].attribute[j] > input.resource[i].threshold[j])
                output.resource[i].exceeded[j] = 1;
            else
                output.resource[i].exceeded[j] = 0;
        }
    }
}
test "nothing is beyond" {
    run;
    expect result == 1 && fault == 0;
    expect output.resource[0].exceeded[0] == 0 && output.resource[15].exceeded[7] == 0;
}
test "the first, the last, and one that is only equal" {
    input.resource[0] = { 8, { 1, 2, 3, 4, 5, 6, 7, 8 }, { 0, 9, 2, 9, 4, 9, 6, 8 } };
    input.resource[7] = { .num_attributes = 2, .attribute = { 5, 6, 7 } };
    input.resource[15].num_attributes = 8;
    input.resource[15].attribute[7] = -1;
    input.resource[15].threshold[7] = -2;
    run;
    expect output.resource[0].exceeded[0] == 1 && output.resource[0].exceeded[1] == 0;
    expect output.resource[0].exceeded[2] == 1 && output.resource[0].exceeded[6] == 1;
    expect output.resource[0].exceeded[7] == 0;
    expect output.resource[7].exceeded[1] == 1 && output.resource[7].exceeded[2] == 0;
    expect output.resource[15].exceeded[7] == 1 && output.resource[15].exceeded[6] == 0;
}
test "all of all" {
    input.resource = {
        { 8, { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { 8, { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { 8, { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { 8, { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { 8, { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { 8, { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { 8, { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { 8, { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { 8, { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { 8, { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { 8, { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { 8, { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { 8, { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { 8, { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { 8, { 1, 1, 1, 1, 1, 1, 1, 1 } },
        { 8, { 1, 1, 1, 1, 1, 1, 1, 1 } }
    };
    run;
    expect fault == 0 && output.resource[8].exceeded[4] == 1 &&
            output.resource[15].exceeded[7] == 1;
}
test "more attributes than there are" {
    input.resource[3].num_attributes = 9;
    run;
    expect fault == 1 && result == 1;
}
