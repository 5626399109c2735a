// Indices that may be outside are told; those that are proven, and characters up to a text's
// length, are not.
//@ input: s64 at; u8 few; u32 list[4]; char comm[16]
static u32 seen[8];
static u32 next, count;
int pick(int at) {
    return list[at];
}
u64 sum = list[at];
for (int i = 0; i < few; i++) sum += list[i];
for (int i = 0; i < 4; i++) sum += list[i];
for (int i = 0; i < length(comm); i++) sum += comm[i];
if (at >= 0 && at < 4) sum += list[at];
int at_last = 7;
for (u32 tries = 0; tries < few; tries++) {
    if (seen[at_last] == tries) break;
    at_last = (at_last + 1) % 8;
}
sum += seen[at_last];
seen[next] = sum;
next = (next + 1) % 8;
seen[count++ % 8] += list[hash(sum) & 3];
return sum + pick(few);
//@ warning 7:17 the index may be outside: the array has 4 elements
//@ hint a run in which it is fails, and the event goes on; make sure of it first: i >= 0 && i < 4
//@ warning 9:16 the index may be outside: the array has 4 elements
//@ hint a run in which it is fails, and the event goes on; make sure of it first: i >= 0 && i < 4
//@ warning 10:43 the index may be outside: the array has 4 elements
//@ hint a run in which it is fails, and the event goes on; make sure of it first: i >= 0 && i < 4
