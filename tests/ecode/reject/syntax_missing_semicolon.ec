// A ';' that is missing is told where it belongs, and the next line is read as it is.
//@ input: u64 bytes; u16 port
u64 a = bytes
if (a > 3)
    a = 4
return a + port
//@ error 3:14 expected ';' at the end of the line
//@ hint a statement ends with ';'; only a body that is one expression has none
//@ error 5:10 expected ';' at the end of the line
//@ hint a statement ends with ';'; only a body that is one expression has none
//@ error 6:16 expected ';' at the end of the line
//@ hint a statement ends with ';'; only a body that is one expression has none
