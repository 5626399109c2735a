//! The C algorithms of `bpf/lib`, compiled for the host and callable from the property tests
//! beside.
//!
//! `shim.c` puts every function into a table of pointers; [`Table`] mirrors it, and the wrappers
//! below own the memory that the C code works on. There are two tables of the same source:
//! [`full`] with the kernel's sizes, [`small`] with a queue of 15 events, which is full soon.
//!
//! Each operation on a [`Heap`] or a [`Queue`] is followed by a check of all invariants
//! (`check.h`), so a test only has to compare results.
#![allow(
    unsafe_code,
    reason = "calls C functions on memory that they share with no one"
)]

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;

use ecalls_abi::activation::Activations;
use ecalls_abi::lane::Window;
use ecalls_abi::wire::Wire;

/// `struct guard_look`: what a queue of connections looks like.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    pub now_ns: u64,
    pub age_ns: u64,
    pub accepted: u64,
    pub queued: u64,
    pub begun: u64,
}

/// `struct guard_pace`, of which the C code knows the words.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace([u64; 6]);

/// An entry of the heap, as `struct heap_entry` has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// First in the order.
    pub key: u64,
    /// Orders entries of equal key.
    pub tie: u64,
    /// What the entry stands for; no part of the order.
    pub slot: u64,
}

/// Functions and constants of one compilation of the shim. Those without a pointer are called as
/// they are; the others through [`Heap`] and [`Queue`].
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    heap_size: usize,
    heap_push: unsafe extern "C" fn(*mut c_void, u64, u64, u64) -> c_int,
    heap_pop: unsafe extern "C" fn(*mut c_void, *mut Entry) -> c_int,
    heap_remove: unsafe extern "C" fn(*mut c_void, u32),
    heap_last_by_key: unsafe extern "C" fn(*mut c_void) -> u32,
    heap_last_by_tie: unsafe extern "C" fn(*mut c_void) -> u32,
    heap_count: unsafe extern "C" fn(*const c_void) -> u32,
    heap_entry: unsafe extern "C" fn(*const c_void, u32) -> Entry,
    check_heap: unsafe extern "C" fn(*const c_void) -> *const c_char,
    queue_size: usize,
    pub queue_capacity: u32,
    pub queue_release_max: u32,
    queue_push: unsafe extern "C" fn(*mut c_void, u64, u64, u64, *mut u32) -> c_int,
    queue_release: unsafe extern "C" fn(*mut c_void, u64) -> c_int,
    queue_pop: unsafe extern "C" fn(*mut c_void, *mut u32) -> c_int,
    queue_remove: unsafe extern "C" fn(*mut c_void, u32, *mut u32) -> c_int,
    queue_next_release: unsafe extern "C" fn(*const c_void) -> u64,
    queue_held: unsafe extern "C" fn(*const c_void) -> *const c_void,
    check_queue: unsafe extern "C" fn(*const c_void) -> *const c_char,
    pub bucket_interval_max_ns: u64,
    pub bucket_burst_max: u64,
    pub bucket_skew_ns: u64,
    bucket_next: unsafe extern "C" fn(u64, u64, u64, u64, *mut u64) -> bool,
    pub budget_left: extern "C" fn(u64, u64) -> bool,
    pub budget_next: extern "C" fn(u64, u64, u64, u64) -> u64,
    pub sample_takes: extern "C" fn(u64, u64) -> bool,
    pub histogram_bucket: extern "C" fn(u64) -> u32,
    pub histogram_lower: extern "C" fn(u32) -> u64,
    pub histogram_middle: extern "C" fn(u32) -> u64,
    pub select_one: extern "C" fn(u64, u32, u32) -> u32,
    pub select_from: extern "C" fn(u64, u32, u32) -> u64,
    pub bits_count: extern "C" fn(u64) -> u32,
    pub bits_lowest: extern "C" fn(u64) -> u32,
    pub bits_log2: extern "C" fn(u64) -> u32,
    window_take: unsafe extern "C" fn(*mut Window, u64, u64, u64) -> c_int,
    window_missing: unsafe extern "C" fn(*const Window) -> u64,
    pub window_silence_ns: u64,
    frame_check: unsafe extern "C" fn(*const Wire, u32) -> c_int,
    activation_block: unsafe extern "C" fn(*mut Activations, u32) -> c_int,
    guard_wait: unsafe extern "C" fn(*mut Pace, *const Look, u64) -> u64,
    pub guard_refuses: extern "C" fn(bool, u64, u64, u64) -> bool,
}

unsafe extern "C" {
    #[link_name = "algorithms_small"]
    safe static SMALL: Table;
    #[link_name = "algorithms_full"]
    safe static FULL: Table;
}

/// The algorithms with a heap of 15 entries.
pub fn small() -> &'static Table {
    &SMALL
}

/// The algorithms with the sizes of the kernel side.
pub fn full() -> &'static Table {
    &FULL
}

impl Table {
    /// Whether an event passes a bucket, and the bucket's next word.
    pub fn bucket_next(&self, tat: u64, now_ns: u64, interval_ns: u64, burst: u64) -> (bool, u64) {
        let mut next = 0;
        // SAFETY: the C function stores one u64 through the pointer, which is a local's.
        let allowed = unsafe { (self.bucket_next)(tat, now_ns, interval_ns, burst, &raw mut next) };
        (allowed, next)
    }
}

impl Table {
    /// Takes a frame: 0 fresh, 1 duplicate, 2 stale.
    pub fn window_take(&self, window: &mut Window, epoch: u64, sequence: u64, now_ns: u64) -> i32 {
        // SAFETY: the C function reads and writes the struct, whose layout a test compares.
        unsafe { (self.window_take)(window, epoch, sequence, now_ns) }
    }

    /// Frames that have not arrived.
    pub fn window_missing(&self, window: &Window) -> u64 {
        // SAFETY: the C function reads the struct.
        unsafe { (self.window_missing)(window) }
    }

    /// What a connection would wait that came now.
    pub fn guard_wait(&self, pace: &mut Pace, look: &Look, tick_ns: u64) -> u64 {
        // SAFETY: the C function reads and writes the structs, whose words both sides list.
        unsafe { (self.guard_wait)(pace, look, tick_ns) }
    }

    /// Checks a header: -1, or why the frame is refused.
    pub fn frame_check(&self, wire: &Wire, bytes: u32) -> i32 {
        // SAFETY: the C function reads the struct.
        unsafe { (self.frame_check)(wire, bytes) }
    }

    /// Activation `number` blocks: whether its processor was taken from it.
    pub fn activation_block(&self, page: &UnsafeCell<Activations>, number: u32) -> bool {
        // SAFETY: the C function changes the struct, to which only cells lead.
        unsafe { (self.activation_block)(page.get(), number) == 1 }
    }
}

/// Zeroed memory for a C structure, aligned for it.
struct Memory(Box<[u64]>);

impl Memory {
    fn new(bytes: usize) -> Self {
        Self(vec![0; bytes.div_ceil(8)].into_boxed_slice())
    }

    fn get(&self) -> *const c_void {
        self.0.as_ptr().cast()
    }

    fn get_mut(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }
}

/// Panics with the text that a check of `check.h` returned.
fn expect_sound(wrong: *const c_char) {
    if !wrong.is_null() {
        // SAFETY: not null, so it is one of the string literals of check.h.
        let text = unsafe { CStr::from_ptr(wrong) };
        panic!("{}", text.to_string_lossy());
    }
}

/// A `struct heap`.
pub struct Heap {
    table: &'static Table,
    memory: Memory,
}

impl Heap {
    pub fn new(table: &'static Table) -> Self {
        let memory = Memory::new(table.heap_size);
        Self { table, memory }
    }

    pub fn capacity(&self) -> usize {
        self.table.queue_capacity as usize
    }

    /// Adds an entry; false when the heap is full.
    pub fn push(&mut self, e: Entry) -> bool {
        // SAFETY: `memory` is a heap (zeroed, or left by C) and ours alone.
        let r = unsafe { (self.table.heap_push)(self.memory.get_mut(), e.key, e.tie, e.slot) };
        self.check();
        r == 0
    }

    /// Takes the first entry.
    pub fn pop(&mut self) -> Option<Entry> {
        let mut first = Entry::default();
        // SAFETY: `memory` as in `push`; `first` has the layout of struct heap_entry.
        let r = unsafe { (self.table.heap_pop)(self.memory.get_mut(), &raw mut first) };
        self.check();
        (r == 0).then_some(first)
    }

    /// Removes the entry at an index (from 1).
    pub fn remove(&mut self, index: u32) {
        // SAFETY: `memory` as in `push`.
        unsafe { (self.table.heap_remove)(self.memory.get_mut(), index) };
        self.check();
    }

    /// Index of the entry that sorts last; 0 when there is none.
    pub fn last_by_key(&mut self) -> u32 {
        // SAFETY: `memory` as in `push`.
        unsafe { (self.table.heap_last_by_key)(self.memory.get_mut()) }
    }

    /// Index of an entry with the largest tie; 0 when there is none.
    pub fn last_by_tie(&mut self) -> u32 {
        // SAFETY: `memory` as in `push`.
        unsafe { (self.table.heap_last_by_tie)(self.memory.get_mut()) }
    }

    /// The entries, in the order of their indices; the first has index 1.
    pub fn entries(&self) -> Vec<Entry> {
        entries(self.table, self.memory.get())
    }

    fn check(&self) {
        // SAFETY: `memory` as in `push`; C only reads it.
        expect_sound(unsafe { (self.table.check_heap)(self.memory.get()) });
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries()).finish()
    }
}

/// `heap` points to a `struct heap` that nobody changes meanwhile.
fn entries(table: &Table, heap: *const c_void) -> Vec<Entry> {
    // SAFETY: the callers pass a heap that they own.
    let count = unsafe { (table.heap_count)(heap) };
    // SAFETY: the same; the index is masked by the shim.
    (1..=count)
        .map(|i| unsafe { (table.heap_entry)(heap, i) })
        .collect()
}

/// What became of an event that was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It waits in this slot.
    Placed(u32),
    /// It waits in this slot, whose event was dropped for it.
    Replaced(u32),
    Refused,
}

/// A `struct queue`.
pub struct Queue {
    table: &'static Table,
    memory: Memory,
}

impl Queue {
    pub fn new(table: &'static Table) -> Self {
        let memory = Memory::new(table.queue_size);
        Self { table, memory }
    }

    pub fn capacity(&self) -> usize {
        self.table.queue_capacity as usize
    }

    /// How many held events become ready in one call.
    pub fn release_max(&self) -> usize {
        self.table.queue_release_max as usize
    }

    /// Adds an event. `deadline_ns` 0: none.
    pub fn push(&mut self, deadline_ns: u64, release_ns: u64, now_ns: u64) -> Pushed {
        let (memory, mut slot) = (self.memory.get_mut(), u32::MAX);
        let slot_out = &raw mut slot;
        // SAFETY: `memory` is a queue (zeroed, or left by C) and ours alone; C stores one u32.
        let r =
            unsafe { (self.table.queue_push)(memory, deadline_ns, release_ns, now_ns, slot_out) };
        self.check();
        match r {
            0 => Pushed::Placed(slot),
            1 => Pushed::Replaced(slot),
            2 => Pushed::Refused,
            _ => panic!("queue_push returned {r}"),
        }
    }

    /// Makes held events ready whose time has come; returns how many.
    pub fn release(&mut self, now_ns: u64) -> usize {
        // SAFETY: `memory` as in `push`.
        let moved = unsafe { (self.table.queue_release)(self.memory.get_mut(), now_ns) };
        self.check();
        usize::try_from(moved).expect("a count")
    }

    /// Takes the first ready event: its slot, which is free again.
    pub fn pop(&mut self) -> Option<u32> {
        let mut slot = u32::MAX;
        // SAFETY: `memory` as in `push`; C stores one u32.
        let r = unsafe { (self.table.queue_pop)(self.memory.get_mut(), &raw mut slot) };
        self.check();
        (r == 0).then_some(slot)
    }

    /// Takes the ready event at a place from 1 on, in no order: its slot, which is free again.
    pub fn remove(&mut self, at: u32) -> Option<u32> {
        let mut slot = u32::MAX;
        // SAFETY: `memory` as in `push`; C stores one u32.
        let r = unsafe { (self.table.queue_remove)(self.memory.get_mut(), at, &raw mut slot) };
        self.check();
        (r == 0).then_some(slot)
    }

    /// When the next held event is due; 0 when none is held.
    pub fn next_release(&self) -> u64 {
        // SAFETY: `memory` as in `push`; C only reads it.
        unsafe { (self.table.queue_next_release)(self.memory.get()) }
    }

    /// The slots of the held events, in no order.
    pub fn held_slots(&self) -> Vec<u32> {
        // SAFETY: `memory` as in `push`; the result points into it.
        let held = unsafe { (self.table.queue_held)(self.memory.get()) };
        let mask = u64::from(self.table.queue_capacity);
        let slot = |e: Entry| u32::try_from(e.slot & mask).expect("masked");
        entries(self.table, held).into_iter().map(slot).collect()
    }

    fn check(&self) {
        // SAFETY: `memory` as in `push`; C only reads it.
        expect_sound(unsafe { (self.table.check_queue)(self.memory.get()) });
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("held", &self.held_slots())
            .finish_non_exhaustive()
    }
}
