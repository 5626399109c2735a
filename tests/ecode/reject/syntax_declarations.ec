// Structs, enums and functions.
//@ input: u64 bytes; u16 port
struct a { int x = 1; static int y; int z }
enum { A B };
int f(int, b);
int g(int a);
static int h(int a) { struct local { int x; }; return a; }
return A + g(1) + h(2);
//@ error 3:16 a field has no first value
//@ hint give it to the variable
//@ error 3:23 a field is neither 'static' nor 'const'
//@ hint that is said of the variable
//@ error 3:43 expected ';', found '}'
//@ hint every declaration ends with ';'
//@ error 3:44 expected ';' at the end of the line
//@ hint a struct ends with '};'
//@ error 4:10 expected ',' or '}' behind a value, found 'B'
//@ hint the values of an enum are separated by ','
//@ error 5:10 expected the parameter's name, found ','
//@ hint a function needs no declaration before its use: only define it
//@ error 6:13 expected '{' and what the function does, found ';'
//@ hint functions need no declaration before they are used
//@ error 7:1 'static' and 'const' are for variables
//@ hint remove it: every function is known in this text only
//@ error 7:36 struct local is defined in the wrong place
//@ hint define it before the functions and the body, and use it by name
//@ error 8:12 there is no function 'g'
//@ hint define it: u64 g(u64 x) { ... }
