//! Memory: every address of the code is made here, in [`Translator::place_of`].
//!
//! A section's place and size are known. The compiler says the largest value of an index, and has
//! proven it; the code compares all the same. So an error in that proof ends a run by a fault, and
//! no text that is made to find one reaches other memory.

use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{AliasRegion, Endianness, InstBuilder, MemFlags, Value};
use ecode::frame::at;
use ecode::ir::{Address, Op, Operand, Operator, Region, Register};
use ecode::limits::EFFECTS;
use ecode::tree::Fault;

use super::Translator;
use crate::error::Error;

/// Bytes that are copied without a loop.
const UNROLLED: u32 = 128;

/// A place in the memory that may be accessed.
#[derive(Clone, Copy)]
pub(super) struct Place {
    base: Value,
    offset: i32,
    flags: MemFlags,
}

/// What an access does with its place.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Read,
    Write,
}

impl Place {
    fn further(self, bytes: u32) -> Place {
        Place {
            offset: self.offset + bytes as i32,
            ..self
        }
    }
}

impl Translator<'_> {
    /// The place of so many bytes. The code fails if the index is larger than it may be.
    fn place_of(&mut self, address: Address, bytes: u32, does: Does) -> Result<Place, Error> {
        let section = self.layout.section(address.region);
        let size = match address.region {
            // The effects behind it are not the program's.
            Region::Frame => at::EFFECT as usize,
            _ => section.len(),
        };
        let largest = address.index.map_or(0, |index| index.largest);
        let end = u64::from(address.offset) + u64::from(largest) + u64::from(bytes);
        if end > size as u64 {
            return Err(Error::Malformed("an address may be outside of its section"));
        }
        if does == Does::Write && !is_writable(address.region, address.offset) {
            return Err(Error::Malformed("it writes to what it may only read"));
        }
        let mut base = self.memory;
        if let Some(index) = address.index {
            let distance = self.register(index.register)?;
            if !self.bounds.is_within(index.register, largest) {
                let is_outside = self.is_at_least(distance, i64::from(largest) + 1);
                self.fail_if(is_outside, Fault::Index);
                self.bounds.learn(index.register, largest);
            }
            base = self.builder.ins().iadd(base, distance);
        }
        Ok(Place {
            base,
            offset: section.start as i32 + address.offset as i32,
            flags: flags(address.region),
        })
    }

    pub(super) fn access(&mut self, op: &Op) -> Result<(), Error> {
        match *op {
            Op::Load {
                to,
                from,
                bits,
                signed,
            } => {
                let place = self.place_of(from, u32::from(bits / 8), Does::Read)?;
                let value = self.load(place, bits, signed);
                self.set(to, value)
            }
            Op::Store { to, value, bits } => {
                let place = self.place_of(to, u32::from(bits / 8), Does::Write)?;
                let value = self.value(value)?;
                self.store(place, bits, value);
                Ok(())
            }
            Op::Atomic {
                old,
                to,
                operator,
                value,
                bits,
            } => self.atomic((old, to), operator, value, bits),
            Op::Copy {
                to, from, bytes, ..
            } => {
                let to = self.place_of(to, bytes, Does::Write)?;
                let from = self.place_of(from, bytes, Does::Read)?;
                self.fill(to, Some(from), bytes);
                Ok(())
            }
            Op::Zero { to, bytes, .. } => {
                let to = self.place_of(to, bytes, Does::Write)?;
                self.fill(to, None, bytes);
                Ok(())
            }
            _ => Err(Error::Unsupported("an instruction without machine code")),
        }
    }

    /// No other run uses this memory.
    fn atomic(
        &mut self,
        (old, to): (Option<Register>, Address),
        operator: Operator,
        value: Operand,
        bits: u8,
    ) -> Result<(), Error> {
        let place = self.place_of(to, u32::from(bits / 8), Does::Write)?;
        let before = self.load(place, bits, false);
        let value = self.value(value)?;
        let after = self.binary(operator, before, value);
        self.store(place, bits, after);
        old.map_or(Ok(()), |old| self.set(old, before))
    }

    fn load(&mut self, place: Place, bits: u8, signed: bool) -> Value {
        let Place {
            base,
            offset,
            flags,
        } = place;
        let ins = self.builder.ins();
        match (bits, signed) {
            (8, false) => ins.uload8(I64, flags, base, offset),
            (8, true) => ins.sload8(I64, flags, base, offset),
            (16, false) => ins.uload16(I64, flags, base, offset),
            (16, true) => ins.sload16(I64, flags, base, offset),
            (32, false) => ins.uload32(flags, base, offset),
            // In two steps: see `condition`.
            (32, true) => {
                let low = ins.load(I32, flags, base, offset);
                self.builder.ins().sextend(I64, low)
            }
            _ => ins.load(I64, flags, base, offset),
        }
    }

    fn store(&mut self, place: Place, bits: u8, value: Value) {
        let Place {
            base,
            offset,
            flags,
        } = place;
        let ins = self.builder.ins();
        match bits {
            8 => ins.istore8(flags, value, base, offset),
            16 => ins.istore16(flags, value, base, offset),
            32 => ins.istore32(flags, value, base, offset),
            _ => ins.store(flags, value, base, offset),
        };
    }

    /// Copies, or sets to 0 if it comes from nowhere. What is copied does not overlap, or is the
    /// same.
    fn fill(&mut self, to: Place, from: Option<Place>, bytes: u32) {
        let mut at = 0;
        if bytes > UNROLLED {
            at = bytes / 8 * 8;
            self.fill_words(to, from, at);
        }
        while at < bytes {
            let size = [8, 4, 2, 1].into_iter().find(|size| at + size <= bytes);
            let size = size.unwrap_or(1);
            self.move_one(
                to.further(at),
                from.map(|from| from.further(at)),
                size as u8 * 8,
            );
            at += size;
        }
    }

    fn move_one(&mut self, to: Place, from: Option<Place>, bits: u8) {
        let value = match from {
            Some(from) => self.load(from, bits, false),
            None => self.number(0),
        };
        self.store(to, bits, value);
    }

    /// A loop over whole words.
    fn fill_words(&mut self, to: Place, from: Option<Place>, bytes: u32) {
        let [again, after] = [(); 2].map(|()| self.builder.create_block());
        let done = self.builder.append_block_param(again, I64);
        let begin = self.number(0);
        self.builder.ins().jump(again, &[begin.into()]);
        self.builder.switch_to_block(again);
        let [to, from] = [Some(to), from].map(|place| {
            place.map(|place| Place {
                base: self.builder.ins().iadd(place.base, done),
                ..place
            })
        });
        if let Some(to) = to {
            self.move_one(to, from, 64);
        }
        let word = self.number(8);
        let next = self.builder.ins().iadd(done, word);
        let all = self.is_at_least(next, i64::from(bytes));
        self.builder
            .ins()
            .brif(all, after, &[], again, &[next.into()]);
        self.builder.seal_block(again);
        self.begin(after);
    }

    pub(super) fn put_result(&mut self, value: Value) {
        let place = self.place_in_frame(self.memory, at::RESULT);
        self.store(place, 64, value);
    }

    fn place_in_frame(&self, base: Value, offset: u32) -> Place {
        Place {
            base,
            offset: self.frame() + offset as i32,
            flags: flags(Region::Frame),
        }
    }

    /// Adds a request to the frame.
    pub(super) fn effect(
        &mut self,
        kind: u32,
        number: Operand,
        values: [Operand; 3],
    ) -> Result<(), Error> {
        let count_place = self.place_in_frame(self.memory, at::EFFECT_COUNT);
        let count = self.load(count_place, 32, false);
        let is_full = self.is_at_least(count, i64::from(EFFECTS));
        self.fail_if(is_full, Fault::Effects);
        let one = self.number(1);
        let more = self.builder.ins().iadd(count, one);
        self.store(count_place, 32, more);
        let size = self.number(i64::from(at::EFFECT_BYTES));
        let distance = self.builder.ins().imul(count, size);
        let base = self.builder.ins().iadd(self.memory, distance);
        let place = self.place_in_frame(base, at::EFFECT);
        let kind = self.number(i64::from(kind));
        self.store(place, 32, kind);
        let number = self.value(number)?;
        self.store(place.further(4), 32, number);
        for (value, offset) in values.into_iter().zip([8, 16, 24]) {
            let value = self.value(value)?;
            self.store(place.further(offset), 64, value);
        }
        Ok(())
    }
}

/// An access cannot trap, since the memory is there. Those to different groups of regions do not
/// meet.
fn flags(region: Region) -> MemFlags {
    let group = match region {
        Region::Event | Region::Input | Region::Attributes | Region::Sinks => AliasRegion::Vmctx,
        Region::Frame | Region::State => AliasRegion::Table,
        Region::Output | Region::Locals => AliasRegion::Heap,
    };
    MemFlags::new()
        .with_notrap()
        .with_endianness(Endianness::Little)
        .with_alias_region(Some(group))
}

fn is_writable(region: Region, offset: u32) -> bool {
    match region {
        Region::Event | Region::Input | Region::Attributes | Region::Sinks => false,
        Region::Frame => [at::RANDOM, at::DROP, at::ACCEPTED, at::REJECTED].contains(&offset),
        Region::Output | Region::Locals | Region::State => true,
    }
}
