// A result that loses its fraction.
//@ input: u64 bytes
fixed mean = bytes / 8.0;
if (bytes > 1) return (long)mean;
return mean;
//@ warning 5:8 the result is a whole number: below 1, this ends the chain
//@ hint compare it, or convert it: (long)(...)
