// What C's library has under another name here.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
printf("x");
return strlen(comm) > 2 && strcmp(comm, "a") == 0;
//@ error 3:1 there is no function 'printf'
//@ hint nothing is printed: keep it in output or in a static variable
//@ error 4:8 there is no function 'strlen'
//@ hint bytes of a string: length(string)
//@ error 4:28 there is no function 'strcmp'
//@ hint strings are compared by == and !=
