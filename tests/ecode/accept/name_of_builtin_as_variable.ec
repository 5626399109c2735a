// A field or a local may have the name of a function.
//@ input: u64 min; u64 max
int count = 3;
return min + count;
