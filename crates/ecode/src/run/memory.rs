//! The memory of a program in user space: one piece of memory with a section for each region of the
//! IR, laid out inside as in the kernel. So an access needs one check, whatever its region.
//!
//! A section is as large as the program needs it. The event's data directly follows its header, as
//! in the kernel, so a whole record is set by one copy.

use std::ops::Range;

use super::code::put_at;
use super::machine::Ended;
use crate::frame::at;
use crate::ir::{Instruction, Op, Program, Region};
use crate::limits;
use crate::tree::Fault;

/// Bytes of a frame before its output.
const HEAD: usize = at::OUTPUT as usize;
/// The seed of `random()` unless [`Memory::set_random`] sets one; any number but 0 will do.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// See the head of this file.
#[derive(Clone, Debug)]
pub struct Memory {
    pub(super) bytes: Vec<u8>,
    layout: Layout,
}

/// Where the section of each region lies in a program's memory.
#[derive(Clone, Debug)]
pub struct Layout {
    frame: usize,
    output: usize,
    output_bytes: usize,
    locals: usize,
    state: usize,
    attributes: usize,
    sinks: usize,
    end: usize,
}

impl Layout {
    /// That of a program's memory.
    pub fn new(program: &Program) -> Layout {
        let input = (at::EVENT_DATA + program.input).next_multiple_of(8) as usize;
        let output = input + HEAD;
        let locals = output + program.output.next_multiple_of(8) as usize;
        let state = locals + program.locals as usize;
        let attributes = state + program.state.bytes.len();
        let sinks = attributes + limits::ATTRIBUTES as usize * 8;
        let has_sinks = uses_sinks(&program.body);
        let table = if has_sinks { at::SINK_TABLE_BYTES } else { 0 };
        Layout {
            frame: input,
            output,
            output_bytes: program.output as usize,
            locals,
            state,
            attributes,
            sinks,
            end: sinks + table as usize,
        }
    }

    /// The bytes of a region. That of the frame includes the effects.
    pub fn section(&self, region: Region) -> Range<usize> {
        match region {
            Region::Event => 0..at::EVENT_DATA as usize,
            Region::Input => at::EVENT_DATA as usize..self.frame,
            Region::Frame => self.frame..self.output,
            Region::Output => self.output..self.locals,
            Region::Locals => self.locals..self.state,
            Region::State => self.state..self.attributes,
            Region::Attributes => self.attributes..self.sinks,
            Region::Sinks => self.sinks..self.end,
        }
    }

    /// All bytes of the memory.
    pub fn bytes(&self) -> usize {
        self.end
    }
}

fn uses_sinks(body: &[Instruction]) -> bool {
    body.iter().any(|instruction| {
        let of_sinks = |op: &Op| {
            let Op::Load { from, .. } = op else {
                return false;
            };
            from.region == Region::Sinks
        };
        of_sinks(&instruction.op) || instruction.op.bodies().any(uses_sinks)
    })
}

/// A request that a run left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// [`crate::frame::effect`]
    pub kind: u32,
    /// The number of the signal, service or counter.
    pub number: u32,
    pub values: [u64; 3],
}

impl Memory {
    /// Memory for this program: the initial state, all else 0.
    pub fn new(program: &Program) -> Memory {
        let layout = Layout::new(program);
        let mut memory = Memory {
            bytes: vec![0; layout.end],
            layout,
        };
        memory.state_mut().copy_from_slice(&program.state.bytes);
        memory.set_random(SEED);
        memory
    }

    /// Sets the event's header: as many bytes as are given, at most all.
    pub fn set_header(&mut self, header: &[u8]) {
        copy_what_fits(&mut self.bytes[..at::EVENT_DATA as usize], header);
    }

    /// Sets the event's data and, in the header, how much it is. Only what the program reads is
    /// copied.
    pub fn set_input(&mut self, data: &[u8]) {
        let section = at::EVENT_DATA as usize..self.layout.frame;
        copy_what_fits(&mut self.bytes[section], data);
        let size = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.put(at::EVENT_SIZE as usize, &size.to_le_bytes());
    }

    /// Sets the event: header and data as one record (`struct ecalls_event`). If the record ends
    /// before its data does, its size is what there is.
    pub fn set_event(&mut self, record: &[u8]) {
        let needed = self.layout.frame;
        copy_what_fits(&mut self.bytes[..needed], record);
        let there = record.len().saturating_sub(at::EVENT_DATA as usize);
        if there < self.word(at::EVENT_SIZE as usize) as usize {
            let there = there as u32;
            self.put(at::EVENT_SIZE as usize, &there.to_le_bytes());
        }
    }

    /// Sets the result of `now()`.
    pub fn set_now(&mut self, now_ns: u64) {
        self.put_frame(at::NOW, now_ns);
    }

    /// Sets the seed of `random()`; 0 is replaced by another number.
    pub fn set_random(&mut self, state: u64) {
        self.put_frame(at::RANDOM, if state == 0 { SEED } else { state });
    }

    /// Sets the sinks that exist, one bit each.
    pub fn set_sinks_present(&mut self, mask: u64) {
        self.put_frame(at::SINKS_PRESENT, mask);
    }

    pub fn output(&self) -> &[u8] {
        let start = self.layout.output;
        self.section(start..start + self.layout.output_bytes)
    }

    /// The state, which stays from run to run.
    pub fn state(&self) -> &[u8] {
        self.section(self.layout.state..self.layout.attributes)
    }

    /// The state, to be changed.
    pub fn state_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.layout.state..self.layout.attributes]
    }

    /// Sets an attribute of the channel.
    pub fn set_attribute(&mut self, number: u32, value: i64) {
        let offset = number.min(limits::ATTRIBUTES - 1) as usize * 8;
        self.put(self.layout.attributes + offset, &value.to_le_bytes());
    }

    /// The table of sinks; empty if the program does not read it.
    pub fn sinks_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.layout.sinks..self.layout.end]
    }

    /// The result of the run; 1 if it returned none.
    pub fn result(&self) -> i64 {
        self.frame(at::RESULT) as i64
    }

    /// The fault of the run, if it failed.
    pub fn fault(&self) -> Option<Fault> {
        Fault::of_number(self.frame_word(at::FAULT))
    }

    /// The byte of the text where it failed, if it is known. (A fault because of too little data
    /// has no place.)
    pub fn fault_place(&self) -> Option<u32> {
        self.fault()?;
        self.frame_word(at::FAULT_PLACE).checked_sub(1)
    }

    /// Fuel that is left.
    pub fn fuel(&self) -> u32 {
        self.frame_word(at::FUEL)
    }

    /// The reason for which the run dropped the event, if it did.
    pub fn drop_reason(&self) -> Option<u8> {
        self.frame_word(at::DROP)
            .checked_sub(1)
            .map(|reason| reason as u8)
    }

    /// The state of `random()`.
    pub fn random(&self) -> u64 {
        self.frame(at::RANDOM)
    }

    /// Sinks that were accepted, and those that were rejected.
    pub fn judged(&self) -> (u64, u64) {
        (self.frame(at::ACCEPTED), self.frame(at::REJECTED))
    }

    /// The requests of the run, in order.
    pub fn effects(&self) -> impl Iterator<Item = Effect> + '_ {
        (0..self.frame_word(at::EFFECT_COUNT)).map(|at| {
            let begin = at::EFFECT + at * at::EFFECT_BYTES;
            Effect {
                kind: self.frame_word(begin),
                number: self.frame_word(begin + 4),
                values: [8, 16, 24].map(|offset| self.frame(begin + offset)),
            }
        })
    }

    /// Writes the inputs of a run. Returns whether the event has enough data.
    pub(super) fn begin(&mut self, program: &Prologue) -> bool {
        let head = self.layout.frame;
        // Result 1, the fuel, no fault, no effect, no reason to drop.
        let fresh = [1, u64::from(program.fuel), 0].map(u64::to_le_bytes);
        put_at(&mut self.bytes, head + at::RESULT as usize, fuse(fresh));
        put_at(&mut self.bytes, head + at::ACCEPTED as usize, [0; 16]);
        if self.word(at::EVENT_SIZE as usize) < program.input {
            self.put_word(at::FAULT, Fault::Input as u32);
            self.put_word(at::FAULT_PLACE, 0);
            return false;
        }
        if program.output > 0 {
            self.bytes[self.layout.output..self.layout.locals].fill(0);
        }
        true
    }

    /// After a run.
    pub(super) fn end(&mut self, ended: &Ended) {
        self.put_word(at::FUEL, ended.fuel);
        match ended.result {
            Ok(result) => self.put_frame(at::RESULT, result as u64),
            Err((fault, span)) => {
                self.put_word(at::FAULT, fault as u32);
                self.put_word(at::FAULT_PLACE, span.map_or(0, |span| span.start + 1));
            }
        }
    }

    fn section(&self, section: Range<usize>) -> &[u8] {
        &self.bytes[section]
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn put_frame(&mut self, offset: u32, value: u64) {
        self.put(self.layout.frame + offset as usize, &value.to_le_bytes());
    }

    fn put_word(&mut self, offset: u32, value: u32) {
        self.put(self.layout.frame + offset as usize, &value.to_le_bytes());
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(super::code::bytes_at(&self.bytes, at))
    }

    fn frame_word(&self, offset: u32) -> u32 {
        self.word(self.layout.frame + offset as usize)
    }

    fn frame(&self, offset: u32) -> u64 {
        u64::from_le_bytes(super::code::bytes_at(
            &self.bytes,
            self.layout.frame + offset as usize,
        ))
    }
}

/// The properties of the program that matter before its first instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prologue {
    pub(super) input: u32,
    pub(super) output: u32,
    pub(super) fuel: u32,
}

fn fuse(words: [[u8; 8]; 3]) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes.as_chunks_mut().0.copy_from_slice(&words);
    bytes
}

fn copy_what_fits(to: &mut [u8], from: &[u8]) {
    let count = to.len().min(from.len());
    to[..count].copy_from_slice(&from[..count]);
}
