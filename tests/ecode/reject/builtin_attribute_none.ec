// Where there are no attributes.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
return attr("load") > 1;
//@ error 3:13 there is no attribute 'load'
//@ hint whoever subscribes names the attributes of its channel
