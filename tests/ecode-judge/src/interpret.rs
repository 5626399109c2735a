//! The kernel's instructions, executed without a kernel: for tests where nobody may load programs,
//! and to count exactly what an event costs ([`Run::executed`]), which no clock on a busy machine
//! can.
//!
//! It knows what programs of ours and of clang's consist of: arithmetic, jumps, loads and stores,
//! atomic operations, `may_goto`, and one helper, the lookup in an array of one element. An address
//! is a memory's number and a distance in it; whatever lies outside ends the run with an error, so
//! a program that the verifier would refuse harms nobody here.

use ecode::bpf::Object;

/// Parts of an instruction's first byte, and of its other fields (linux/bpf.h).
mod code {
    pub(super) const ALU32: u8 = 0x04;
    pub(super) const ALU64: u8 = 0x07;
    pub(super) const JUMP: u8 = 0x05;
    pub(super) const JUMP32: u8 = 0x06;
    pub(super) const REGISTER: u8 = 0x08;
    pub(super) const LOAD: u8 = 0x61;
    pub(super) const LOAD_SIGNED: u8 = 0x81;
    pub(super) const STORE_CONSTANT: u8 = 0x62;
    pub(super) const STORE: u8 = 0x63;
    pub(super) const ATOMIC: u8 = 0xc3;
    pub(super) const WIDE: u8 = 0x18;
    pub(super) const CALL: u8 = 0x85;
    pub(super) const EXIT: u8 = 0x95;
    pub(super) const LOOKUP: i32 = 1;
    pub(super) const SOURCE_MAP: u8 = 1;
    pub(super) const SOURCE_MAP_VALUE: u8 = 2;
}

/// What a program works on: a memory for each map, and one for its stack behind them.
#[derive(Debug)]
pub struct Run<'m> {
    /// The maps' only elements.
    pub memories: &'m mut [Vec<u8>],
    /// Instructions executed so far.
    pub executed: u64,
    registers: [u64; 11],
    stack: Vec<u8>,
    /// The instruction that is next.
    at: usize,
}

/// Why a run was ended: the instruction, and what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    pub instruction: usize,
    /// The instruction's action that is not permitted.
    pub reason: &'static str,
}

const STACK_BYTES: usize = 512;
/// Instructions after which a run is ended.
const MOST: u64 = 1 << 32;
/// The register that stands at the end of the stack.
const STACK: usize = 10;

/// An instruction's fields.
#[derive(Clone, Copy)]
struct Fields {
    code: u8,
    to: usize,
    from: usize,
    offset: i16,
    constant: i32,
}

impl Fields {
    fn of(word: u64) -> Fields {
        Fields {
            code: word as u8,
            to: (word >> 8 & 15) as usize,
            from: (word >> 12 & 15) as usize,
            offset: (word >> 16) as i16,
            constant: (word >> 32) as i32,
        }
    }

    fn has(self, flag: u8) -> bool {
        self.code & flag != 0
    }
}

type Step<T> = Result<T, &'static str>;

impl<'m> Run<'m> {
    /// Nothing has been executed.
    pub fn new(memories: &'m mut [Vec<u8>]) -> Run<'m> {
        let mut run = Run {
            memories,
            executed: 0,
            registers: [0; 11],
            stack: vec![0; STACK_BYTES],
            at: 0,
        };
        run.begin();
        run
    }

    /// Executes a program of ours once; its memories stand in the order of
    /// [`Map`](ecode::bpf::Map).
    ///
    /// # Errors
    /// It does what no verifier accepts.
    pub fn execute_object(&mut self, object: &Object) -> Result<u64, Stopped> {
        self.begin();
        let ended = self.advance_object(object, MOST)?;
        ended.ok_or(self.stopped("too many instructions"))
    }

    /// Executes so many instructions of a program of ours; what it returns, if it ends there. The
    /// next call goes on from here: what is done to the memories in between, another CPU does.
    ///
    /// # Errors
    /// It does what no verifier accepts.
    pub fn advance_object(&mut self, object: &Object, most: u64) -> Result<Option<u64>, Stopped> {
        let map = |at: usize, _| {
            let used = object.maps.iter();
            let mut used = used.filter(|used| used.instruction as usize == at);
            used.next().map(|used| used.map as usize)
        };
        self.advance(&object.instructions, &map, most)
    }

    /// Executes any program once. `map` says which memory the map is that the wide constant at this
    /// index names by this number.
    ///
    /// # Errors
    /// It does what no verifier accepts.
    pub fn execute(
        &mut self,
        program: &[u64],
        map: &dyn Fn(usize, i32) -> Option<usize>,
    ) -> Result<u64, Stopped> {
        self.begin();
        let ended = self.advance(program, map, MOST)?;
        ended.ok_or(self.stopped("too many instructions"))
    }

    fn begin(&mut self) {
        self.at = 0;
        self.registers = [0; 11];
        self.registers[STACK] = address(self.memories.len()) + STACK_BYTES as u64;
    }

    fn stopped(&self, reason: &'static str) -> Stopped {
        Stopped {
            instruction: self.at,
            reason,
        }
    }

    fn advance(
        &mut self,
        program: &[u64],
        map: &dyn Fn(usize, i32) -> Option<usize>,
        most: u64,
    ) -> Result<Option<u64>, Stopped> {
        for _ in 0..most {
            let at = self.at;
            let stopped = |reason| Stopped {
                instruction: at,
                reason,
            };
            let word = program.get(at).ok_or(stopped("no instruction"))?;
            let fields = Fields::of(*word);
            self.executed += 1;
            self.at = match fields.code {
                code::EXIT => {
                    let result = self.registers[0];
                    self.begin();
                    return Ok(Some(result));
                }
                code::WIDE => {
                    let high = program.get(at + 1).map_or(0, |word| word >> 32);
                    let value = wide(fields, high, map(at, fields.constant));
                    self.registers[fields.to % 11] = value.map_err(stopped)?;
                    at + 2
                }
                code::CALL => {
                    if fields.constant != code::LOOKUP {
                        return Err(stopped("an unknown function"));
                    }
                    self.registers[0] = self.registers[1];
                    at + 1
                }
                _ => match fields.code & 7 {
                    code::JUMP | code::JUMP32 => self
                        .jump(fields)
                        .map_err(stopped)?
                        .map_or(at + 1, |by| (at + 1).wrapping_add_signed(by)),
                    code::ALU32 | code::ALU64 => {
                        self.compute(fields).map_err(stopped)?;
                        at + 1
                    }
                    _ => {
                        self.access(fields).map_err(stopped)?;
                        at + 1
                    }
                },
            };
        }
        Ok(None)
    }

    fn operand(&self, fields: Fields) -> u64 {
        if fields.has(code::REGISTER) {
            self.registers[fields.from % 11]
        } else {
            i64::from(fields.constant) as u64
        }
    }

    fn jump(&self, fields: Fields) -> Step<Option<isize>> {
        let narrow = fields.code & 7 == code::JUMP32;
        let (a, b) = (self.registers[fields.to % 11], self.operand(fields));
        let (a, b) = if narrow {
            (u64::from(a as u32), u64::from(b as u32))
        } else {
            (a, b)
        };
        let signed = |value: u64| {
            if narrow {
                i64::from(value as i32)
            } else {
                value as i64
            }
        };
        let (c, d) = (signed(a), signed(b));
        let taken = match fields.code & 0xf0 {
            0x00 if narrow => return Ok(Some(fields.constant as isize)),
            0x00 => true,
            0x10 => a == b,
            0x20 => a > b,
            0x30 => a >= b,
            0x40 => a & b != 0,
            0x50 => a != b,
            0x60 => c > d,
            0x70 => c >= d,
            0xa0 => a < b,
            0xb0 => a <= b,
            0xc0 => c < d,
            0xd0 => c <= d,
            // The kernel has time.
            0xe0 => false,
            _ => return Err("an unknown jump"),
        };
        Ok(taken.then_some(isize::from(fields.offset)))
    }

    fn compute(&mut self, fields: Fields) -> Step<()> {
        let narrow = fields.code & 7 == code::ALU32;
        let (a, b) = (self.registers[fields.to % 11], self.operand(fields));
        let value = if narrow {
            u64::from(narrow_result(fields, a as u32, b as u32)?)
        } else {
            wide_result(fields, a, b)?
        };
        self.registers[fields.to % 11] = value;
        Ok(())
    }

    fn access(&mut self, fields: Fields) -> Step<()> {
        let size = match fields.code & 0x18 {
            0x10 => 1,
            0x08 => 2,
            0x00 => 4,
            _ => 8,
        };
        let (to, from) = (fields.to % 11, fields.from % 11);
        let is_load = matches!(fields.code & 7, 1);
        let base = self.registers[if is_load { from } else { to }];
        let at = base.wrapping_add_signed(i64::from(fields.offset));
        let mut word = [0; 8];
        let bytes = self.bytes(at, size)?;
        word[..size].copy_from_slice(bytes);
        let old = u64::from_le_bytes(word);
        let bits = 64 - size as u32 * 8;
        match fields.code & 0xe7 {
            code::LOAD => self.registers[to] = old,
            code::LOAD_SIGNED => self.registers[to] = ((old << bits) as i64 >> bits) as u64,
            code::STORE_CONSTANT => self.put(at, size, i64::from(fields.constant) as u64)?,
            code::STORE => self.put(at, size, self.registers[from])?,
            code::ATOMIC => {
                let value = self.registers[from];
                let new = match fields.constant & 0xf0 {
                    0x00 => old.wrapping_add(value),
                    0x40 => old | value,
                    0x50 => old & value,
                    0xa0 => old ^ value,
                    _ => return Err("an unknown atomic operation"),
                };
                self.put(at, size, new)?;
                if fields.constant & 1 != 0 {
                    self.registers[from] = old;
                }
            }
            _ => return Err("an unknown access"),
        }
        Ok(())
    }

    fn bytes(&mut self, at: u64, size: usize) -> Step<&mut [u8]> {
        let (memory, distance) = ((at >> 32) as usize, (at & 0xffff_ffff) as usize);
        let memory = match memory.checked_sub(1).ok_or("no address")? {
            number if number == self.memories.len() => &mut self.stack,
            number => self.memories.get_mut(number).ok_or("no address")?,
        };
        memory
            .get_mut(distance..)
            .and_then(|rest| rest.get_mut(..size))
            .ok_or("outside its memory")
    }

    fn put(&mut self, at: u64, size: usize, value: u64) -> Step<()> {
        let bytes = self.bytes(at, size)?;
        bytes.copy_from_slice(&value.to_le_bytes()[..size]);
        Ok(())
    }
}

fn address(memory: usize) -> u64 {
    (memory as u64 + 1) << 32
}

fn wide(fields: Fields, high: u64, memory: Option<usize>) -> Step<u64> {
    let constant = u64::from(fields.constant as u32);
    match fields.from as u8 {
        0 => Ok(high << 32 | constant),
        code::SOURCE_MAP => Ok(address(memory.ok_or("an unknown map")?)),
        code::SOURCE_MAP_VALUE => Ok(address(memory.ok_or("an unknown map")?) + high),
        _ => Err("an unknown constant"),
    }
}

/// Divisions and extensions with sign are told by the offset.
fn wide_result(fields: Fields, a: u64, b: u64) -> Step<u64> {
    let (signed, x, y) = (fields.offset != 0, a as i64, b as i64);
    Ok(match fields.code & 0xf0 {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        0x30 if signed => x.checked_div(y).unwrap_or(if y == 0 { 0 } else { x }) as u64,
        0x30 => a.checked_div(b).unwrap_or(0),
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a << (b & 63),
        0x70 => a >> (b & 63),
        0x80 => a.wrapping_neg(),
        0x90 if signed => x.checked_rem(y).unwrap_or(if y == 0 { x } else { 0 }) as u64,
        0x90 => a.checked_rem(b).unwrap_or(a),
        0xa0 => a ^ b,
        0xb0 => extended(b, fields.offset),
        0xc0 => (x >> (b & 63)) as u64,
        _ => return Err("unknown arithmetic"),
    })
}

fn narrow_result(fields: Fields, a: u32, b: u32) -> Step<u32> {
    let (signed, x, y) = (fields.offset != 0, a as i32, b as i32);
    Ok(match fields.code & 0xf0 {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        0x30 if signed => x.checked_div(y).unwrap_or(if y == 0 { 0 } else { x }) as u32,
        0x30 => a.checked_div(b).unwrap_or(0),
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a << (b & 31),
        0x70 => a >> (b & 31),
        0x80 => a.wrapping_neg(),
        0x90 if signed => x.checked_rem(y).unwrap_or(if y == 0 { x } else { 0 }) as u32,
        0x90 => a.checked_rem(b).unwrap_or(a),
        0xa0 => a ^ b,
        0xb0 => extended(u64::from(b), fields.offset) as u32,
        0xc0 => (x >> (b & 31)) as u32,
        _ => return Err("unknown arithmetic"),
    })
}

fn extended(value: u64, bits: i16) -> u64 {
    match bits {
        8 => i64::from(value as i8) as u64,
        16 => i64::from(value as i16) as u64,
        32 => i64::from(value as i32) as u64,
        _ => value,
    }
}
