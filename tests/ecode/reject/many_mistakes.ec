// All mistakes of a text in one run, and none that only follows from another.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
struct output { u32 total; };
int twice(int a) { return a * tow; }
int total = twice(port, 1);
undefined u = 1;
for (int i = 0; i < lenght(comm); i++) {
    output.total += list[i].x;
    output.sum = i;
}
if (u > undeclared && undeclared > 2)
    return undeclared;
return total
//@ error 4:31 'tow' is not declared
//@ hint the event's data has bytes, port, level, flags, comm, list
//@ error 5:13 'twice' takes 1 argument, 2 given
//@ hint it is twice(int)
//@ error 6:1 'undefined' is no type
//@ hint types are u8 to u64, s8 to s64, C's integers, bool, fixed and structs
//@ error 7:21 there is no function 'lenght'
//@ hint did you mean 'length'?
//@ error 8:29 unsigned int has no fields
//@ hint it is a number: it stands for itself
//@ error 9:12 output has no field 'sum'
//@ hint known: total
//@ error 11:9 'undeclared' is not declared
//@ hint the event's data has bytes, port, level, flags, comm, list
//@ error 13:13 expected ';' at the end of the line
//@ hint a statement ends with ';'; only a body that is one expression has none
