// A function of a type that there is not.
wrong note(int x) { return; }
note(1);
return 1;
//@ error 2:1 'wrong' is no type
//@ hint types are u8 to u64, s8 to s64, C's integers, bool, fixed and structs
