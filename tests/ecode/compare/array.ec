// A loop over an array: passes what most of the loads are above.
struct input { int load[16]; int limit; };
int above = 0;
for (int i = 0; i < 16; i++)
    if (load[i] > limit)
        above++;
return above > 8;
