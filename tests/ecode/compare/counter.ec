// State: passes every tenth event, and adds up what all of them carried.
struct input { u32 bytes; };
static u64 events;
static u64 sum;
sum += bytes;
events++;
return events % 10 == 0;
