// A number is taken from a counter that is too narrow for an atomic update.
//@ input: u32 bytes
static u16 small;
static char tiny[4];
static u32 wide;
u16 local = 7;
small++;
tiny[1] -= 1;
wide += bytes;
if (small++ == 5 || --tiny[bytes % 4] == 1)
    return wide++ == 5;
return (small += 2) + local++ + (small |= 4) > 5;
//@ warning 10:5 two CPUs can get the same number: 16 bits are not atomic
//@ hint make it u32 or u64
//@ warning 10:21 two CPUs can get the same number: 8 bits are not atomic
//@ hint make it u32 or u64
//@ warning 12:8 two CPUs can get the same number: 16 bits are not atomic
//@ hint make it u32 or u64
