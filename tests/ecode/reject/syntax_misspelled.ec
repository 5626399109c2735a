// Words with slips.
//@ input: u64 bytes; u16 port
unsinged a = 3;
struct pair { int x; };
pair p;
whlie (a) { a--; }
retrun a + p.x;
//@ error 3:1 'unsinged' is no type
//@ hint did you mean 'unsigned'?
//@ error 5:1 'pair' is no type
//@ hint write 'struct pair'
//@ error 6:11 expected ';', found '{'
//@ hint did you mean 'while' instead of 'whlie'?
//@ error 7:8 expected ';', found 'a'
//@ hint did you mean 'return' instead of 'retrun'?
