// A number from outside reaches a comparison through twenty variables and a function, each of
// which is assigned before the one that it comes from.
//@ input: u32 count; s32 level
int same(int x) { return x; }

{
    int v0 = 0, v1 = 0, v2 = 0, v3 = 0, v4 = 0;
    int v5 = 0, v6 = 0, v7 = 0, v8 = 0, v9 = 0;
    int v10 = 0, v11 = 0, v12 = 0, v13 = 0, v14 = 0;
    int v15 = 0, v16 = 0, v17 = 0, v18 = 0, v19 = 0;
    for (int i = 0; i < 30; i++) {
        v0 = v1;
        v1 = v2;
        v2 = v3;
        v3 = v4;
        v4 = v5;
        v5 = v6;
        v6 = v7;
        v7 = v8;
        v8 = v9;
        v9 = same(v10);
        v10 = v11;
        v11 = v12;
        v12 = v13;
        v13 = v14;
        v14 = v15;
        v15 = v16;
        v16 = v17;
        v17 = v18;
        v18 = v19;
        v19 = level;
    }
    return v0 < count;
}
//@ warning 33:15 what may be negative is compared without sign
//@ hint convert the other side: (int)(...)
