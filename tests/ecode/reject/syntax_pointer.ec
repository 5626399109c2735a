// What C has and E-code has not.
//@ input: u64 bytes; u16 port
int *p;
u64 x = &bytes;
u64 y = *x;
typedef int number;
float f = 1.5;
union u { int a; } v;
goto end;
end: return x->y + y + f + v;
//@ error 3:5 there are no pointers
//@ hint use an array, or copy the value: structs are copied whole
//@ error 4:9 there are no pointers
//@ hint values are copied; whole arrays and structs too
//@ error 5:9 there are no pointers
//@ hint use an array with an index
//@ error 6:1 there is no 'typedef'
//@ hint use the type itself, or a struct
//@ error 7:1 'float' is no type
//@ hint 'fixed' is the type of numbers with a fraction
//@ error 8:1 there is no 'union'
//@ hint use a struct
//@ error 9:1 there is no 'goto'
//@ hint use 'break', 'continue' or 'return'
//@ error 10:1 labels have no meaning
//@ hint there is no 'goto'; a label of a switch is 'case VALUE:'
