//! poll and select, as programs call them.

use std::ffi::c_int;
use std::ptr;

use ecalls_preload::fortify::check_polls;
use libc::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDBAND, POLLRDNORM, POLLWRBAND,
    POLLWRNORM, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval,
};

use crate::next;
use crate::set::is_large;
use crate::thread::Thread;
use crate::wait::{Call, Sleep, cancellation_point, now_ns, ns_of};

/// The descriptors of a word of an fd_set.
const WORD: usize = 64;

/// What select(2) takes for readable, writable and exceptional.
const READ: i16 = POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR;
const WRITE: i16 = POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR;
const EXCEPT: i16 = POLLPRI;

/// poll(2) for a time in ns, `None`: for ever. `as_asked` is the program's call of the kernel.
unsafe fn poll_for(
    fds: *mut pollfd,
    count: nfds_t,
    limit_ns: Option<u64>,
    mask: *const sigset_t,
    as_asked: &dyn Fn() -> c_int,
) -> c_int {
    let Some(size) = usize::try_from(count).ok().filter(|size| is_large(*size)) else {
        return as_asked();
    };
    cancellation_point();
    let Some(thread) = Thread::enter() else {
        return as_asked();
    };
    let call = Call {
        entries: fds,
        count: size,
        limit_ns,
        mask,
        kernel: &|sleep| match sleep {
            Sleep::AsAsked => as_asked(),
            // SAFETY: the caller's array.
            Sleep::Rest(left, mask) => unsafe { next::ppoll(fds, count, left, mask) },
        },
        see: &|_| {},
        give: &|_, count| Some(count),
    };
    // SAFETY: the caller's array.
    unsafe { call.execute(thread) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, limit_ms: c_int) -> c_int {
    let limit_ns = u64::try_from(limit_ms).ok().map(|ms| ms * 1_000_000);
    // SAFETY: the caller's.
    unsafe {
        poll_for(fds, count, limit_ns, ptr::null(), &|| {
            next::poll(fds, count, limit_ms)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __poll(fds: *mut pollfd, count: nfds_t, limit_ms: c_int) -> c_int {
    // SAFETY: the caller's.
    unsafe { poll(fds, count, limit_ms) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's.
    let as_asked = || unsafe { next::ppoll(fds, count, limit, mask) };
    // SAFETY: the caller's time.
    let limit_ns = match unsafe { limit.as_ref() } {
        None => None,
        Some(limit) => match ns_of(limit) {
            None => return as_asked(),
            some => some,
        },
    };
    // SAFETY: the caller's.
    unsafe { poll_for(fds, count, limit_ns, mask, &as_asked) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    limit_ms: c_int,
    bytes: size_t,
) -> c_int {
    check_polls(count, bytes);
    // SAFETY: the caller's.
    unsafe { poll(fds, count, limit_ms) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
    bytes: size_t,
) -> c_int {
    check_polls(count, bytes);
    // SAFETY: the caller's.
    unsafe { ppoll(fds, count, limit, mask) }
}

// --- select ---

/// The sets of select(2), each null or with one bit for each descriptor below `count`.
#[derive(Clone, Copy)]
struct Sets {
    count: usize,
    sets: [*mut fd_set; 3],
}

const WANTED: [i16; 3] = [READ, WRITE, EXCEPT];

impl Sets {
    fn new(count: c_int, sets: [*mut fd_set; 3]) -> Self {
        Self {
            count: usize::try_from(count).unwrap_or(0),
            sets,
        }
    }

    fn words(&self) -> usize {
        self.count.div_ceil(WORD)
    }

    /// A word of a set, without bits beyond the last descriptor.
    fn word(&self, set: usize, word: usize) -> u64 {
        let words: *const u64 = self.sets[set].cast();
        if words.is_null() {
            return 0;
        }
        let bits = (self.count - word * WORD).min(WORD);
        // SAFETY: the caller's set has words for so many.
        unsafe { words.add(word).read() & (u64::MAX >> (WORD - bits)) }
    }

    /// Calls `each` for every descriptor that is in a set, with those it is in.
    fn each(&self, mut each: impl FnMut(usize, [bool; 3])) {
        for word in 0..self.words() {
            let words = [0, 1, 2].map(|set| self.word(set, word));
            let mut any = words[0] | words[1] | words[2];
            while any != 0 {
                let bit = any.trailing_zeros();
                any &= any - 1;
                let is_in = words.map(|set| set >> bit & 1 != 0);
                each(word * WORD + bit as usize, is_in);
            }
        }
    }

    /// How many descriptors are in a set.
    fn descriptors(&self) -> usize {
        let words = (0..self.words()).map(|word| {
            let any = self.word(0, word) | self.word(1, word) | self.word(2, word);
            any.count_ones() as usize
        });
        words.sum()
    }

    /// Puts what is asked into an array with room for it.
    fn put(&self, entries: &mut [pollfd]) {
        let mut entries = entries.iter_mut();
        self.each(|fd, is_in| {
            let wanted = is_in.iter().zip(WANTED).filter(|(is_in, _)| **is_in);
            let events = wanted.fold(0, |events, (_, wanted)| events | wanted);
            if let Some(entry) = entries.next() {
                *entry = pollfd {
                    fd: c_int::try_from(fd).unwrap_or(-1),
                    events: events & !(POLLHUP | POLLERR),
                    revents: 0,
                };
            }
        });
    }

    /// Puts answers into the sets; how many bits that are. `None`: a descriptor is none, which
    /// select refuses.
    fn answer(&self, entries: &[pollfd]) -> Option<c_int> {
        if entries.iter().any(|entry| entry.revents & POLLNVAL != 0) {
            return None;
        }
        let mut answers = entries.iter();
        let mut count = 0;
        for word in 0..self.words() {
            let mut answer = [0_u64; 3];
            let asked = [0, 1, 2].map(|set| self.word(set, word));
            let any = asked[0] | asked[1] | asked[2];
            for bit in (0..WORD).filter(|bit| any >> bit & 1 != 0) {
                let told = answers.next().map_or(0, |entry| entry.revents);
                for set in 0..3 {
                    let is_ready = asked[set] >> bit & 1 != 0 && told & WANTED[set] != 0;
                    answer[set] |= u64::from(is_ready) << bit;
                    count += c_int::from(is_ready);
                }
            }
            for (set, answer) in self.sets.iter().zip(answer) {
                if !set.is_null() {
                    // SAFETY: as above.
                    unsafe { set.cast::<u64>().add(word).write(answer) };
                }
            }
        }
        Some(count)
    }

    /// Puts the answers of the kernel, which are in the sets, into the array.
    fn see(&self, entries: &mut [pollfd]) {
        for entry in entries {
            let fd = usize::try_from(entry.fd).unwrap_or(0);
            let is_in = |set| self.word(set, fd / WORD) >> (fd % WORD) & 1 != 0;
            entry.revents = i16::from((0..3).any(is_in));
        }
    }
}

/// select(2) for a time in ns.
unsafe fn select_for(
    sets: Sets,
    limit_ns: Option<u64>,
    mask: *const sigset_t,
    as_asked: &dyn Fn() -> c_int,
) -> c_int {
    let size = sets.descriptors();
    if !is_large(size) {
        return as_asked();
    }
    cancellation_point();
    let Some(thread) = Thread::enter() else {
        return as_asked();
    };
    // SAFETY: the thread's own, until it leaves.
    let asked = unsafe { &mut (*thread).asked };
    if !asked.hold(size) {
        Thread::leave(thread);
        return as_asked();
    }
    sets.put(&mut asked.all()[..size]);
    let entries = asked.all().as_mut_ptr();
    let call = Call {
        entries,
        count: size,
        limit_ns,
        mask,
        kernel: &|sleep| match sleep {
            Sleep::AsAsked => as_asked(),
            // SAFETY: the caller's sets, which are as they were.
            Sleep::Rest(left, mask) => unsafe {
                let [read, write, except] = sets.sets;
                let count = c_int::try_from(sets.count).unwrap_or(c_int::MAX);
                next::pselect(count, read, write, except, left, mask)
            },
        },
        see: &|entries| sets.see(entries),
        give: &|entries, _| sets.answer(entries),
    };
    // SAFETY: the array is the thread's own.
    unsafe { call.execute(thread) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    limit: *mut timeval,
) -> c_int {
    // SAFETY: the caller's.
    let as_asked = || unsafe { next::select(count, read, write, except, limit) };
    // SAFETY: the caller's time.
    let limit_ns = match unsafe { limit.as_ref() } {
        None => None,
        Some(limit) if limit.tv_sec < 0 || limit.tv_usec < 0 => return as_asked(),
        Some(limit) => {
            let us = limit.tv_sec.cast_unsigned().saturating_mul(1_000_000);
            let us = us.saturating_add(limit.tv_usec.cast_unsigned());
            Some(us.saturating_mul(1_000))
        }
    };
    let begun_ns = limit_ns.map(|_| now_ns(libc::CLOCK_MONOTONIC));
    let sets = Sets::new(count, [read, write, except]);
    // SAFETY: the caller's.
    let result = unsafe { select_for(sets, limit_ns, ptr::null(), &as_asked) };
    if let (Some(limit_ns), Some(begun_ns)) = (limit_ns, begun_ns) {
        // select(2) on Linux tells how much of the time is left.
        let passed_ns = now_ns(libc::CLOCK_MONOTONIC).saturating_sub(begun_ns);
        let left_us = limit_ns.saturating_sub(passed_ns) / 1_000;
        // SAFETY: the caller's time.
        unsafe {
            (*limit).tv_sec = i64::try_from(left_us / 1_000_000).unwrap_or(i64::MAX);
            (*limit).tv_usec = i64::try_from(left_us % 1_000_000).unwrap_or(0);
        }
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    limit: *mut timeval,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { select(count, read, write, except, limit) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's.
    let as_asked = || unsafe { next::pselect(count, read, write, except, limit, mask) };
    // SAFETY: the caller's time.
    let limit_ns = match unsafe { limit.as_ref() } {
        None => None,
        Some(limit) => match ns_of(limit) {
            None => return as_asked(),
            some => some,
        },
    };
    let sets = Sets::new(count, [read, write, except]);
    // SAFETY: the caller's.
    unsafe { select_for(sets, limit_ns, mask, &as_asked) }
}
