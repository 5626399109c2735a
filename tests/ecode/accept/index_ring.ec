// An index that is a static is inside if all that is stored there is.
//@ input: u64 bytes
struct ring {
    u64 kept[16];
    int at;
    u32 other;
};
static struct ring ring;
static u64 last[16];
static int next;
static u32 masked = 15;
last[next] = bytes;
next = (next + 1) % 16;
last[(next + 15) % 16] += 1;
ring.kept[ring.at] = bytes;
ring.at = (ring.at + 1) % 16;
ring.other++;
last[masked]++;
masked = (masked + 1) & 15;
return last[0] > 0;
