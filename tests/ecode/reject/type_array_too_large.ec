// A local is in the frame, a static in the state; both are limited.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct page { char byte[4096]; };
struct page both[2];
static struct page nine[9];
return both[0].byte[0] + nine[0].byte[0];
//@ error 4:13 8192 bytes are too many for a local: at most 4096
//@ hint a static may be larger (REGION_BYTES, STATE_BYTES)
//@ error 5:20 larger than 32768 bytes (STATE_BYTES)
