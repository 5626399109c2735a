// The example of the paper (ECalls-05, section 3.3) in its own words.
//@ constants: NUM_RESOURCES 16
struct metric { int num_attributes; int attribute[8]; int threshold[8]; };
struct verdict { int exceeded[8]; };
struct input { struct metric resource[16]; };
struct output { struct verdict resource[16]; };
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
//@ warning 12:45 the index may be outside: the array has 8 elements
//@ hint a run in which it is fails, and the event goes on; make sure of it first: i >= 0 && i < 8
