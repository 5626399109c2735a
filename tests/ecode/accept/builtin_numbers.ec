// min, max, clamp, abs and hash, of all numbers.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
fixed f = min(1.5, port);
long a = max(level, -3) + clamp(bytes, 10, 20) + abs(level - 1);
return a + hash(bytes) % 10 + (f > 1) + min(1, 2) + (abs(-1.5) == 1.5);
