// The input is limited.
struct input { u64 many[600]; };
return input.many[0] > 0;
//@ error 2:8 input has 4800 bytes, at most 4096 (REGION_BYTES)
