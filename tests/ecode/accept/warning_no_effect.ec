// Values with which nothing is done.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
int a = 1;
a == 2;
a;
a + 1;
-a;
(void)a;
if (a);
return 1;
//@ warning 4:1 nothing is done with this value
//@ hint an assignment is '=', a result 'return ...;'
//@ warning 5:1 nothing is done with this value
//@ hint a result is 'return ...;': without it every event goes on
//@ warning 6:1 nothing is done with this value
//@ hint a result is 'return ...;': without it every event goes on
//@ warning 7:1 nothing is done with this value
//@ hint a result is 'return ...;': without it every event goes on
//@ warning 9:7 an 'if' that does nothing
//@ hint a ';' too many?
