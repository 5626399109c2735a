// Fuel is a constant within its limit, and given once.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
fuel 0;
fuel 2000000;
fuel port;
return 1;
//@ error 3:6 fuel is 1 to 1000000 (FUEL_MAX), not 0
//@ error 4:6 fuel is given twice
//@ hint remove one of them
//@ error 5:6 fuel is given twice
//@ hint remove one of them
