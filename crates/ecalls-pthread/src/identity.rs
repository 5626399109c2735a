//! Changing the user or group of the process. The kernel changes that of one kernel thread; the C
//! library has each of them do so in the handler of a signal, and waits until each has noted it in
//! its control block. An activation has a user-level thread's block at that moment, so the library
//! would wait for ever. It is refused once there are such threads.

use std::ffi::c_int;

use libc::{ENOTSUP, gid_t, size_t, uid_t};

use crate::{runtime, say};
use ecalls_preload::errno;

macro_rules! identity {
    ($(fn $name:ident($($argument:ident: $type:ty),*);)*) => {
        mod real {
            use super::*;

            ecalls_preload::next! { $(fn $name($($argument: $type),*) -> c_int;)* }
        }

        $(#[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
            if runtime::is_started() {
                say(concat!(
                    stringify!($name),
                    " is not possible once there are user-level threads: call it before, or run \
                     the program without --threads"
                ));
                errno::set(ENOTSUP);
                return -1;
            }
            // SAFETY: the caller's arguments.
            unsafe { real::$name($($argument),*) }
        })*
    };
}

identity! {
    fn setuid(user: uid_t);
    fn seteuid(user: uid_t);
    fn setreuid(real: uid_t, effective: uid_t);
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t);
    fn setgid(group: gid_t);
    fn setegid(group: gid_t);
    fn setregid(real: gid_t, effective: gid_t);
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t);
    fn setgroups(count: size_t, groups: *const gid_t);
}
