// What is declared as a pointer is told once, and stays known.
struct S {
    int *p;
};
static struct S s;
int first(int *list, int n) {
    return list[n];
}
return s.p + first(1, 2);
//@ error 3:9 there are no pointers
//@ hint use an array, or copy the value: structs are copied whole
//@ error 6:15 there are no pointers
//@ hint use an array, or copy the value: structs are copied whole
