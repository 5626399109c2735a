// The name of a constant as a condition: a comparison was meant.
//@ input: u64 bytes; u16 port; u16 family; s16 level; u8 flags; char comm[16]
//@ kinds: fork, exec, exit
//@ constants: SSH 22
enum { LOW = 1, MIDDLE, HIGH };
bool high() {
    if (port == 7) return exec;
    if (LOW) return true;
    return level == MIDDLE || HIGH;
}
if (exec) return 1;
if (!exec || (exec && bytes)) return 1;
if (event.kind != fork && exec || high()) return 1;
while (fork) break;
if (fork || exec || event.kind == exit) return port == 80 || SSH;
if (family == AF_INET || AF_INET6) return 0;
if (port == 80 || exec) return 0;
if (AF_INET ? bytes : flags) return 0;
if (port > 5) return exec;
return event.kind == fork || exec;
//@ warning 7:27 the constant 'exec' is always true
//@ hint write 'event.kind == exec'
//@ warning 8:9 the constant 'LOW' is always true
//@ hint compare something with it: '... == LOW'
//@ warning 9:31 the constant 'HIGH' is always true
//@ hint write 'level == HIGH'
//@ warning 11:5 the constant 'exec' is always true
//@ hint write 'event.kind == exec'
//@ warning 12:6 the constant 'exec' is always true
//@ hint write 'event.kind != exec'
//@ warning 12:15 the constant 'exec' is always true
//@ hint write 'event.kind == exec'
//@ warning 13:27 the constant 'exec' is always true
//@ hint write 'event.kind != exec'
//@ warning 14:8 the constant 'fork' is always false
//@ hint write 'event.kind == fork'
//@ warning 15:5 the constant 'fork' is always false
//@ hint write 'event.kind == fork'
//@ warning 15:13 the constant 'exec' is always true
//@ hint write 'event.kind == exec'
//@ warning 15:62 the constant 'SSH' is always true
//@ hint write 'port == SSH'
//@ warning 16:26 the constant 'AF_INET6' is always true
//@ hint write 'family == AF_INET6'
//@ warning 17:19 the constant 'exec' is always true
//@ hint write 'event.kind == exec'
//@ warning 18:5 the constant 'AF_INET' is always true
//@ hint compare something with it: '... == AF_INET'
//@ warning 19:22 the constant 'exec' is always true
//@ hint write 'event.kind == exec'
//@ warning 20:30 the constant 'exec' is always true
//@ hint write 'event.kind == exec'
