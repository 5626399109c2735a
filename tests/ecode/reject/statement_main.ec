// The whole of it in a function, as C has it.
//@ input: u64 bytes
int main() { return bytes > 1; }
//@ error 1:1 there is nothing to run for an event
//@ hint what stands in main runs if it stands alone: take it out of the function
