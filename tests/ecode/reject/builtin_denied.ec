// What the subscription has no right to.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
//@ denied: signal signals need the right to signal
//@ denied: random chance is not for filters
//@ denied: uid users are not shown
signal(40, 1);
if (random() % 2) return 0;
return event.uid == 0;
//@ error 6:1 not allowed here: signals need the right to signal
//@ error 7:5 not allowed here: chance is not for filters
//@ error 8:8 not allowed here: users are not shown
