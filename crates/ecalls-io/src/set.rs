//! A thread's lasting epoll set, and how it answers for an array of poll(2).
//!
//! The kernel's set is the truth: it is asked in each call. What is remembered here is only what
//! was registered in it, for which the array of each call is compared with that of the last one:
//! - it is the same, and no watched number was closed: nothing is registered ([`is_same`]);
//! - else each number is looked up, and what has changed is registered. If that is more than the
//!   calls have earned ([`Set::credit`]), the kernel's poll answers: so arrays that are different
//!   each time cost twice as much as without this library, at most.
//!
//! Each registration has a number of its own, which the kernel gives back with an event. An event
//! of an older registration comes from a file whose descriptor was closed but that lives on
//! elsewhere: then the set is made anew, since nobody can take that file out.
//!
//! Programs may close by system calls of their own, which no library sees. So once in
//! [`CHECK_NS`] the kernel's poll answers, and what it calls ready is registered anew: what was
//! opened under a number closed in that way is seen so much later, at most.

use std::arch::x86_64::{
    __m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128, _mm_setzero_si128,
    _mm_xor_si128,
};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use ecalls_preload::errno;
use libc::{
    EBADF, EEXIST, EPERM, EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD,
    F_DUPFD_CLOEXEC, POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDNORM, POLLWRNORM,
    epoll_event, pollfd, rlimit,
};

use crate::descriptor::{self, NEVER};
use crate::region::{Plain, Region};
use crate::thread::close_own;

/// Every array is a set at once, and the kernel's poll is never asked in between: for tests, whose
/// arrays are small and polled once.
pub(crate) static EAGER: AtomicBool = AtomicBool::new(false);

/// Smaller arrays are the kernel's: it polls them in the time that a set takes.
const FEWEST: usize = 16;
/// So often the kernel's poll answers, ns. For thousands of entries it takes a millisecond.
const CHECK_NS: u64 = 500_000_000;
/// What a registration costs, in entries of an array that the kernel polls.
const COST: u64 = 3;
/// The most credit, in calls.
const CALLS_MAX: u64 = 8;
/// After so many calls a set is tried again that the kernel has refused.
const REFUSED_CALLS: u32 = 1000;
/// And one whose array was for the most part ready.
const READY_CALLS: u32 = 16;
/// If of so many descriptors one is ready, the kernel's poll is cheaper.
const READY_PART: usize = 3;
/// So many entries are compared at once: two lines of the cache.
const COMPARED: usize = 16;
/// The highest number that the set's descriptor asks for, and its distance to the limit.
const NUMBER_MAX: u64 = 16_384;
const NUMBER_BELOW: u64 = 64;

/// What poll can ask for: the bits of epoll are the same. The others of the word mean nothing to
/// poll, and something else to epoll.
const ASKED: u16 = 0x27df;
/// What poll tells unasked.
const ALWAYS_TOLD: u16 = (POLLERR | POLLHUP) as u16;
/// What poll tells of a file that cannot be waited for, e.g. a regular one.
const READY: u16 = (POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM) as u16;

/// Registrations: none, and that of a file that is always ready.
const NONE: u32 = 0;
const ALWAYS: u32 = u32::MAX;
/// The end of a list of entries.
const END: u32 = u32::MAX;

/// A descriptor's number, as the set has it.
#[derive(Clone, Copy)]
struct Place {
    registration: u32,
    /// The last renewal that found it in the array, and what is asked of it there by all entries.
    seen: u32,
    asked: u16,
    /// What the kernel was asked for.
    registered: u16,
    /// The first of its entries, which [`Set::following`] goes on from.
    first: u32,
    /// How often the number had been closed when it was registered.
    count: u64,
}

// SAFETY: a structure of numbers.
unsafe impl Plain for Place {}

/// Who answers a call.
pub(crate) enum Answer {
    Ready(c_int),
    /// No descriptor is ready.
    Nothing,
    /// The kernel's poll; its answer is to be checked against the set: [`Set::check`].
    Kernel {
        checks: bool,
    },
}

const KERNEL: Answer = Answer::Kernel { checks: false };

pub(crate) struct Set {
    pub(crate) epoll: c_int,
    /// The array is that of the last renewal, if it looks the same.
    is_complete: bool,
    changes: u64,
    credit: u64,
    checked_ns: u64,
    /// Calls that are left to the kernel.
    kernel_calls: u32,
    /// The kernel has taken arrays of so many entries: RLIMIT_NOFILE limits them.
    taken: usize,
    renewal: u32,
    registration: u32,
    places: Region<Place>,
    /// The array of the last renewal.
    entries: Region<pollfd>,
    entries_count: usize,
    following: Region<u32>,
    /// The numbers that are registered.
    listed: Region<u32>,
    listed_count: usize,
    /// The numbers of the array; in a renewal.
    found: Region<u32>,
    /// Numbers whose files are always ready, and numbers of no file.
    always: Region<u32>,
    always_count: usize,
    bad_count: usize,
    events: Region<epoll_event>,
}

/// Whether a bit differs. Two entries fill a register; a loop over words takes twice as long.
fn differs(block: &[pollfd; COMPARED], before: &[pollfd; COMPARED]) -> bool {
    const ENTRIES: usize = size_of::<__m128i>() / size_of::<pollfd>();
    let (block, before) = (block.as_ptr(), before.as_ptr());
    // SAFETY: what is loaded is within the arrays; SSE2 is a part of x86-64.
    unsafe {
        let mut any = _mm_setzero_si128();
        for at in (0..COMPARED).step_by(ENTRIES) {
            let entries = _mm_loadu_si128(block.add(at).cast());
            let before = _mm_loadu_si128(before.add(at).cast());
            any = _mm_or_si128(any, _mm_xor_si128(entries, before));
        }
        _mm_movemask_epi8(_mm_cmpeq_epi8(any, _mm_setzero_si128())) != 0xffff
    }
}

/// Compares an array with the one before, which has no answers, and clears its own. Nearly all of
/// it is as before, so it is compared as whole words, and only what differs is looked at.
fn is_same(entries: &mut [pollfd], before: &[pollfd]) -> bool {
    let (blocks, rest) = entries.as_chunks_mut::<COMPARED>();
    let (blocks_before, rest_before) = before.as_chunks::<COMPARED>();
    let mut is_same = is_same_each(rest, rest_before);
    for (block, before) in blocks.iter_mut().zip(blocks_before) {
        if differs(block, before) {
            is_same &= is_same_each(block, before);
        }
    }
    is_same
}

fn is_same_each(entries: &mut [pollfd], before: &[pollfd]) -> bool {
    let mut is_same = true;
    for (entry, before) in entries.iter_mut().zip(before) {
        is_same &= entry.fd == before.fd && entry.events == before.events;
        entry.revents = 0;
    }
    is_same
}

fn index(fd: c_int) -> usize {
    usize::try_from(fd).unwrap_or(0)
}

/// Whether an array of so many entries is worth a set.
#[inline]
pub(crate) fn is_large(entries: usize) -> bool {
    entries >= FEWEST || EAGER.load(Ordering::Relaxed) && entries > 0
}

impl Set {
    pub(crate) const fn new() -> Self {
        Self {
            epoll: -1,
            is_complete: false,
            changes: 0,
            credit: 0,
            checked_ns: 0,
            kernel_calls: 0,
            taken: 0,
            renewal: 0,
            registration: NONE,
            places: Region::new(),
            entries: Region::new(),
            entries_count: 0,
            following: Region::new(),
            listed: Region::new(),
            listed_count: 0,
            found: Region::new(),
            always: Region::new(),
            always_count: 0,
            bad_count: 0,
            events: Region::new(),
        }
    }

    /// Answers for an array without waiting.
    pub(crate) fn ask(&mut self, entries: &mut [pollfd], now_ns: u64) -> Answer {
        if !EAGER.load(Ordering::Relaxed)
            && let Some(answer) = self.leave_to_kernel(entries.len(), now_ns)
        {
            return answer;
        }
        // Before any count is read: what is closed later is seen in the next call.
        let changes = descriptor::changes();
        let same_size = self.entries_count == entries.len();
        let before = self.entries.all().get(..entries.len()).unwrap_or(&[]);
        let is_same = same_size && is_same(entries, before);
        if !(is_same && self.is_complete && self.changes == changes) {
            self.changes = changes;
            match self.renew(entries) {
                Ok(true) => {}
                Ok(false) => return KERNEL,
                Err(()) => return self.refuse(),
            }
        }
        self.collect(entries)
    }

    /// Whether the kernel answers this call, whatever the array is.
    fn leave_to_kernel(&mut self, size: usize, now_ns: u64) -> Option<Answer> {
        let most = size as u64 * CALLS_MAX;
        self.credit = (self.credit + size as u64).min(most);
        if self.kernel_calls > 0 {
            self.kernel_calls -= 1;
            return Some(KERNEL);
        }
        if now_ns.saturating_sub(self.checked_ns) > CHECK_NS {
            self.checked_ns = now_ns;
            return Some(Answer::Kernel { checks: true });
        }
        (size > self.taken).then_some(KERNEL)
    }

    /// The kernel does not want the set, or has none.
    fn refuse(&mut self) -> Answer {
        self.discard();
        self.kernel_calls = REFUSED_CALLS;
        KERNEL
    }

    /// Registers what has changed; false: that is too much.
    fn renew(&mut self, entries: &mut [pollfd]) -> Result<bool, ()> {
        self.is_complete = false;
        let highest = entries.iter().map(|entry| entry.fd).max().unwrap_or(-1);
        if index(highest) >= descriptor::MOST || self.renewal == u32::MAX {
            return Err(());
        }
        self.renewal += 1;
        let size = entries.len();
        let has_room = self.places.hold(index(highest) + 1)
            && self.entries.hold(size)
            && self.following.hold(size)
            && self.listed.hold(size)
            && self.found.hold(size)
            && self.always.hold(size)
            && self.events.hold(size + 1);
        if !has_room {
            return Err(());
        }
        let found_count = self.find(entries);
        let changed = self.changed(found_count) as u64;
        if EAGER.load(Ordering::Relaxed) {
            self.credit = u64::MAX;
        }
        let Some(credit) = self.credit.checked_sub(changed * COST) else {
            self.entries_count = 0;
            return Ok(false);
        };
        self.credit = credit;
        self.register_all(found_count)?;
        self.entries.all()[..size].copy_from_slice(entries);
        self.entries_count = size;
        Ok(true)
    }

    /// Finds the numbers of the array and what is asked of each; how many they are.
    fn find(&mut self, entries: &mut [pollfd]) -> usize {
        let renewal = self.renewal;
        let mut count = 0;
        let (places, following, found) =
            (self.places.all(), self.following.all(), self.found.all());
        for (entry, number) in entries.iter_mut().zip(0..) {
            entry.revents = 0;
            if entry.fd < 0 {
                continue;
            }
            let place = &mut places[index(entry.fd)];
            let asked = entry.events.cast_unsigned() & ASKED;
            if place.seen == renewal {
                place.asked |= asked;
                following[number as usize] = place.first;
            } else {
                place.seen = renewal;
                place.asked = asked;
                following[number as usize] = END;
                found[count] = entry.fd.cast_unsigned();
                count += 1;
            }
            place.first = number;
        }
        count
    }

    /// How many numbers are to be registered or taken out.
    fn changed(&mut self, found_count: usize) -> usize {
        let renewal = self.renewal;
        let places = self.places.all();
        let found = &self.found.all()[..found_count];
        let new = found
            .iter()
            .filter(|fd| !places[**fd as usize].is_right(**fd));
        let new = new.count();
        let listed = &self.listed.all()[..self.listed_count];
        let old = listed
            .iter()
            .filter(|fd| places[**fd as usize].is_left(renewal));
        new + old.count()
    }

    fn register_all(&mut self, found_count: usize) -> Result<(), ()> {
        if self.epoll < 0 {
            self.open()?;
        }
        for number in 0..self.listed_count {
            let fd = *self.listed.at(number);
            if self.places.at(fd as usize).is_left(self.renewal) {
                self.take_out(fd.cast_signed());
            }
        }
        self.listed_count = 0;
        self.always_count = 0;
        self.bad_count = 0;
        // Unless a number is being closed right now, or is none, which may be one in the next call.
        let mut is_complete = true;
        for number in 0..found_count {
            let fd = *self.found.at(number);
            let place = *self.places.at(fd as usize);
            if !place.is_right(fd) && !self.register(fd.cast_signed(), place)? {
                // Numbers of no file are kept from the end on.
                self.bad_count += 1;
                let last = self.always.all().len() - self.bad_count;
                *self.always.at(last) = fd;
                is_complete = false;
                continue;
            }
            let place = *self.places.at(fd as usize);
            is_complete &= place.count != NEVER;
            if place.registration == ALWAYS {
                *self.always.at(self.always_count) = fd;
                self.always_count += 1;
            }
            *self.listed.at(self.listed_count) = fd;
            self.listed_count += 1;
        }
        self.is_complete = is_complete;
        Ok(())
    }

    /// Registers a number; false: it stands for no file.
    fn register(&mut self, fd: c_int, place: Place) -> Result<bool, ()> {
        let has_file = place.registration != NONE && place.count == descriptor::count(fd);
        let count = descriptor::watch(fd);
        if has_file && place.registration != ALWAYS {
            let result = self.control(EPOLL_CTL_MOD, fd, place.asked, place.registration);
            if result == Ok(()) {
                self.places.at(index(fd)).registered = place.asked;
                return Ok(true);
            }
        }
        self.registration += 1;
        if self.registration >= ALWAYS - 1 {
            return Err(());
        }
        let mut registration = self.registration;
        let mut result = self.control(EPOLL_CTL_ADD, fd, place.asked, registration);
        if result == Err(EEXIST) {
            result = self.control(EPOLL_CTL_MOD, fd, place.asked, registration);
        }
        match result {
            Ok(()) => {}
            Err(EPERM) => registration = ALWAYS,
            Err(EBADF) => {
                self.places.at(index(fd)).registration = NONE;
                return Ok(false);
            }
            Err(_) => return Err(()),
        }
        let place = self.places.at(index(fd));
        place.registration = registration;
        place.registered = place.asked;
        place.count = count;
        Ok(true)
    }

    fn control(
        &mut self,
        operation: c_int,
        fd: c_int,
        asked: u16,
        registration: u32,
    ) -> Result<(), c_int> {
        let mut event = epoll_event {
            events: asked.into(),
            u64: u64::from(registration) << 32 | u64::from(fd.cast_unsigned()),
        };
        // SAFETY: the set's own descriptor, and an event of this function.
        let result = unsafe { libc::epoll_ctl(self.epoll, operation, fd, &raw mut event) };
        if result == 0 {
            Ok(())
        } else {
            Err(errno::get())
        }
    }

    fn open(&mut self) -> Result<(), ()> {
        let mut limit = rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: asks for a limit; opens a descriptor, and gives it another number, so high that
        // those of the program are what they would be without.
        let epoll = unsafe {
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
            let number = limit.rlim_cur.saturating_sub(NUMBER_BELOW).min(NUMBER_MAX);
            let number = c_int::try_from(number).unwrap_or(0);
            let low = libc::epoll_create1(EPOLL_CLOEXEC);
            let high = libc::fcntl(low, F_DUPFD_CLOEXEC, number);
            if low >= 0 {
                crate::next::close(low);
            }
            high
        };
        if epoll < 0 {
            return Err(());
        }
        self.epoll = epoll;
        descriptor::keep(epoll);
        Ok(())
    }

    /// Asks the kernel's set, and fills in the answers, which were cleared.
    pub(crate) fn collect(&mut self, entries: &mut [pollfd]) -> Answer {
        let mut ready = 0;
        for number in 0..self.always_count {
            let fd = *self.always.at(number);
            ready += self.tell(entries, fd, READY);
        }
        let places = self.always.all().len();
        for number in places - self.bad_count..places {
            let fd = *self.always.at(number);
            ready += self.tell(entries, fd, POLLNVAL as u16);
        }
        let events = self.events.all();
        let room = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
        // SAFETY: the set's own descriptor, and room for as many events.
        let got = unsafe { libc::epoll_wait(self.epoll, events.as_mut_ptr(), room, 0) };
        let Ok(count) = usize::try_from(got) else {
            return self.refuse();
        };
        for number in 0..count {
            let event = *self.events.at(number);
            let (fd, registration) = (event.u64 as u32, (event.u64 >> 32) as u32);
            let place = self.places.all().get(fd as usize);
            if place.is_none_or(|place| place.registration != registration) {
                self.discard();
                return KERNEL;
            }
            // poll(2) has no more bits.
            ready += self.tell(entries, fd, event.events as u16);
        }
        if ready == 0 {
            // What is ready may be nothing that select counts: then the set would tell for ever.
            return if count == 0 { Answer::Nothing } else { KERNEL };
        }
        if ready > entries.len() / READY_PART {
            self.kernel_calls = READY_CALLS;
        }
        Answer::Ready(c_int::try_from(ready).unwrap_or(c_int::MAX))
    }

    /// Fills in what is told of a number; how many entries that makes ready.
    fn tell(&mut self, entries: &mut [pollfd], fd: u32, told: u16) -> usize {
        let mut ready = 0;
        let mut number = self.places.at(fd as usize).first;
        while let Some(entry) = entries.get_mut(number as usize) {
            let wanted = entry.events.cast_unsigned() | ALWAYS_TOLD | POLLNVAL as u16;
            entry.revents = (told & wanted).cast_signed();
            ready += usize::from(entry.revents != 0);
            number = *self.following.at(number as usize);
        }
        ready
    }

    /// The kernel's poll has taken an array of so many entries, or has refused it.
    pub(crate) fn was_taken(&mut self, size: usize, was_taken: bool) {
        self.taken = if was_taken { size.max(self.taken) } else { 0 };
    }

    /// The kernel's poll has answered: what it calls ready, and what does not tell when it is, is
    /// registered anew.
    pub(crate) fn check(&mut self, entries: &[pollfd], now_ns: u64) {
        self.checked_ns = now_ns;
        for entry in entries.iter().filter(|entry| entry.revents != 0) {
            if self.has(entry.fd) {
                self.take_out(entry.fd);
            }
        }
        for number in 0..self.always_count {
            let fd = *self.always.at(number);
            self.take_out(fd.cast_signed());
        }
    }

    /// Whether a number is registered.
    pub(crate) fn has(&mut self, fd: c_int) -> bool {
        let place = usize::try_from(fd)
            .ok()
            .and_then(|fd| self.places.all().get(fd));
        self.epoll >= 0 && place.is_some_and(|place| place.registration != NONE)
    }

    /// Takes a registered number out.
    pub(crate) fn take_out(&mut self, fd: c_int) {
        let place = self.places.at(index(fd));
        let registration = std::mem::replace(&mut place.registration, NONE);
        self.is_complete = false;
        if registration != ALWAYS {
            let before = errno::get();
            // The number may stand for another file by now, or for none.
            let _ = self.control(EPOLL_CTL_DEL, fd, 0, 0);
            errno::set(before);
        }
    }

    /// Ends the kernel's set.
    pub(crate) fn discard(&mut self) {
        if self.epoll >= 0 {
            close_own(self.epoll);
        }
        self.forget();
    }

    /// Nothing is registered.
    pub(crate) fn forget(&mut self) {
        self.epoll = -1;
        self.is_complete = false;
        self.entries_count = 0;
        self.listed_count = 0;
        self.always_count = 0;
        self.bad_count = 0;
        self.renewal = 0;
        for place in self.places.all() {
            place.registration = NONE;
            place.seen = 0;
        }
    }

    pub(crate) fn free(&mut self) {
        self.places.free();
        self.entries.free();
        self.following.free();
        self.listed.free();
        self.found.free();
        self.always.free();
        self.events.free();
    }
}

impl Place {
    /// It is registered for what is asked.
    fn is_right(&self, fd: u32) -> bool {
        self.registration != NONE
            && (self.registered == self.asked || self.registration == ALWAYS)
            && self.count == descriptor::count(fd.cast_signed())
            && self.count != NEVER
    }

    /// It is registered, but not in the array any more.
    fn is_left(&self, renewal: u32) -> bool {
        self.registration != NONE && self.seen != renewal
    }
}
