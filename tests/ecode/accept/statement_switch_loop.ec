// break of a switch in a loop, continue of the loop.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int n = 0;
for (int i = 0; i < 10; i++) {
    switch (i) { case 3: continue; case 5: break; default: n++; }
    n += 2;
}
return n;
