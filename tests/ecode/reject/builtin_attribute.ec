// Attributes by name.
//@ input: u64 bytes; u16 port; s16 level; u8 flags; char comm[16]; u32 list[4]
//@ attributes: load, jobs
return attr("laod") + attr(load) + attr("colour") + attr(1);
//@ error 4:13 there is no attribute 'laod'
//@ hint did you mean 'load'?
//@ error 4:28 an attribute's name is written in quotes: "name"
//@ hint write "load"
//@ error 4:41 there is no attribute 'colour'
//@ hint known: load, jobs
//@ error 4:58 an attribute's name is written in quotes: "name"
//@ hint it is known by its name only
