// The example of the paper (ECalls-05, section 3.3): which attributes of 16 resources exceed their
// thresholds.
struct metric { int num_attributes; int attribute[8]; int threshold[8]; };
struct verdict { int exceeded[8]; };
struct input { struct metric resource[16]; };
struct output { struct verdict resource[16]; };
{
    int i;
    int j;
    for (i = 0; i < 16; i++) {
        for (j = 0; j < input.resource[i].num_attributes; j++) {
            if (input.resource[i].attribute[j] > input.resource[i].threshold[j])
                output.resource[i].exceeded[j] = 1;
            else
                output.resource[i].exceeded[j] = 0;
        }
    }
}
