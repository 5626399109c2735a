// The same over an array that is too long to be written out.
struct input { int load[500]; int limit; };
int above = 0;
for (int i = 0; i < 500; i++)
    if (load[i] > limit)
        above++;
return above > 250;
