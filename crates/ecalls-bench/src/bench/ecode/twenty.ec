// A filter of twenty lines: who raises how much, in a moving average of each processor.
enum { MANY = 1000, SLICES = 4 };
static u64 last[SLICES];
static fixed mean;
static u64 passed;
int slice = event.cpu & 3;
u64 gap = event.time - last[slice];
last[slice] = event.time;
if (gap > 1000000000)
    gap = 1000000000;
mean = mean * 0.9 + gap / 1000 * 0.1;
u64 oldest = last[0];
for (int i = 1; i < SLICES; i++)
    if (last[i] < oldest)
        oldest = last[i];
if (event.pid == 0 && mean < 1)
    return 0;
if (event.uid == 65534 && passed > MANY)
    return 0;
passed++;
return oldest <= event.time;
