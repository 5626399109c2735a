// What to write instead of an array with too many elements, if there is something.
static int large[10000];
static char small[10000];
static u32 most[8192];
return large[0] + small[0] + most[0];
//@ error 2:18 an array has 1 to 4096 elements (ARRAY_ELEMENTS)
//@ hint all statics of a text have 32768 bytes together (STATE_BYTES), these are 40000
//@ error 3:19 an array has 1 to 4096 elements (ARRAY_ELEMENTS)
//@ hint more elements are an array of arrays: [3][3334]
//@ error 4:17 an array has 1 to 4096 elements (ARRAY_ELEMENTS)
//@ hint more elements are an array of arrays: [2][4096]
