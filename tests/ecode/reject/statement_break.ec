// break and continue belong to loops.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
break;
continue;
switch (port) { case 1: continue; default: break; }
if (port) break;
//@ error 3:1 'break' outside of a loop or switch
//@ hint what ends the run is 'return VALUE;'
//@ error 4:1 'continue' outside of a loop
//@ hint what ends the run is 'return VALUE;'
//@ error 5:25 'continue' outside of a loop
//@ hint what ends the run is 'return VALUE;'
//@ error 6:11 'break' outside of a loop or switch
//@ hint what ends the run is 'return VALUE;'
