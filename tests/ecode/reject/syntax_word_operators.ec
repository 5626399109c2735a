// Operators of other languages.
//@ input: u64 bytes; u16 port
return bytes > 1 and port == 2;
//@ error 3:18 expected ';', found 'and'
//@ hint write '&&'
