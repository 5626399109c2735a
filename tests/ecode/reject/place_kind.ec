// Kinds and constants of the surroundings are not written.
//@ kinds: OPENED, CLOSED
//@ constants: NUM_RESOURCES 16
OPENED = 3;
NUM_RESOURCES++;
//@ error 4:1 this is a constant: it cannot be written
//@ hint to compare, write '=='; what changes is a static or a variable
//@ error 5:1 this is a constant: it cannot be written
//@ hint to compare, write '=='; what changes is a static or a variable
