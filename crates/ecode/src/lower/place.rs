//! The addresses of variables, and of the places of the tree.
//!
//! A scalar local is a register for as long as it lives. All else lies in a region: arrays and
//! structs of the text at the end of what their scope already has of the locals, statics and
//! constant tables in the state in the order of the text (a table only if something uses it),
//! `input` and `output` in regions of their own. Every variable begins at a multiple of 8, so that
//! strings and copies can go by words.

use super::{Lowered, Lowering};
use crate::ir::{Address, Dynamic, Fault, Op, Operand, Operator, Region, Register, StateEntry};
use crate::limits;
use crate::tree::{Place, Storage, VariableId};
use crate::types::Type;

/// Where a variable is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Home {
    /// It has not been declared yet, or not used.
    None,
    /// A scalar local.
    Register(Register),
    /// Any other variable: its first byte.
    Memory(Region, u32),
}

/// The location of a place of the tree.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// All of a scalar local.
    Register(Register),
    /// Something in memory.
    Memory(Address),
}

impl Address {
    /// This address, some bytes further.
    pub(super) fn plus(self, bytes: u32) -> Address {
        Address {
            offset: self.offset + bytes,
            ..self
        }
    }

    /// A fixed address.
    pub(super) fn fixed(region: Region, offset: u32) -> Address {
        Address {
            region,
            offset,
            index: None,
        }
    }
}

impl<'t> Lowering<'t> {
    /// Bytes of a type. The checks have refused types that are too large.
    pub(super) fn size_of(&self, ty: &Type) -> u32 {
        self.tree.structs.size(ty).unwrap_or(u32::MAX)
    }

    /// Assigns addresses to all statics.
    pub(super) fn statics(&mut self) -> Lowered<()> {
        for (variable, at) in self.tree.variables.iter().zip(0..) {
            if matches!(variable.storage, Storage::Static(_)) {
                self.place_in_state(VariableId(at))?;
            }
        }
        Ok(())
    }

    fn place_in_state(&mut self, id: VariableId) -> Lowered<Home> {
        let variable = &self.tree.variables[id.0 as usize];
        let (bytes, constant) = match &variable.storage {
            Storage::Static(bytes) => (bytes, false),
            Storage::Constant(bytes) => (bytes, true),
            Storage::Local | Storage::Input | Storage::Output => return Ok(Home::None),
        };
        let size = self.size_of(&variable.ty);
        let offset = (self.state.bytes.len() as u32).next_multiple_of(8);
        let end = offset.saturating_add(size);
        if end > limits::STATE_BYTES {
            self.span = variable.span;
            let most = limits::STATE_BYTES;
            let message = format!("static variables and tables have more than {most} bytes");
            return Err(self.limit(message, "'once' needs 4096 bytes each"));
        }
        self.state.bytes.resize(offset as usize, 0);
        self.state.bytes.extend(bytes.iter().take(size as usize));
        self.state.bytes.resize(end as usize, 0);
        let name = variable.name.clone();
        let ty = self.describe(&variable.ty);
        self.state.entries.push(StateEntry {
            name,
            ty,
            offset,
            bytes: size,
            constant,
        });
        let home = Home::Memory(Region::State, offset);
        self.homes[id.0 as usize] = home;
        Ok(home)
    }

    /// A type with the types of its parts: equal texts mean the same layout.
    fn describe(&self, ty: &Type) -> String {
        match ty {
            Type::Array(of, count) => format!("{}[{count}]", self.describe(of)),
            Type::Struct(at) => {
                let fields = &self.tree.structs.all[*at].fields;
                let fields: Vec<String> = fields
                    .iter()
                    .map(|field| format!("{} {};", self.describe(&field.ty), field.name))
                    .collect();
                format!("{{{}}}", fields.join(" "))
            }
            Type::Void | Type::Bool | Type::Int(_) | Type::Fixed | Type::Sink | Type::Error => {
                self.tree.structs.name(ty)
            }
        }
    }

    /// Allocates a local: a register, or memory until the end of its scope.
    pub(super) fn make_room(&mut self, id: VariableId) -> Lowered<Home> {
        let ty = &self.tree.variables[id.0 as usize].ty;
        let home = if ty.is_scalar() || *ty == Type::Sink {
            Home::Register(self.register())
        } else {
            Home::Memory(Region::Locals, self.scratch(self.size_of(ty))?)
        };
        self.homes[id.0 as usize] = home;
        Ok(home)
    }

    /// Bytes of the locals until the end of the scope.
    pub(super) fn scratch(&mut self, bytes: u32) -> Lowered<u32> {
        let offset = self.locals.next_multiple_of(8);
        let end = offset.saturating_add(bytes);
        if end > limits::REGION_BYTES {
            let most = limits::REGION_BYTES;
            let message = format!("local arrays and structs have more than {most} bytes here");
            return Err(self.limit(message, "those of called functions count too"));
        }
        self.locals = end;
        self.locals_most = self.locals_most.max(end.next_multiple_of(8));
        Ok(offset)
    }

    /// Ends the scope of the variables that `inside` declares.
    pub(super) fn scope<T>(&mut self, inside: impl FnOnce(&mut Self) -> Lowered<T>) -> Lowered<T> {
        let locals = self.locals;
        let done = inside(self);
        self.locals = locals;
        done
    }

    fn home(&mut self, id: VariableId) -> Lowered<Home> {
        let known = self.homes[id.0 as usize];
        if known != Home::None {
            return Ok(known);
        }
        match self.tree.variables[id.0 as usize].storage {
            Storage::Input => Ok(Home::Memory(Region::Input, 0)),
            Storage::Output => Ok(Home::Memory(Region::Output, 0)),
            Storage::Static(_) | Storage::Constant(_) => self.place_in_state(id),
            Storage::Local => self.make_room(id),
        }
    }

    /// Finds a place: evaluates its indices, each checked at once.
    pub(super) fn find(&mut self, place: &'t Place) -> Lowered<Found> {
        let (region, offset) = match self.home(place.variable)? {
            Home::Memory(region, offset) => (region, offset),
            Home::Register(register) => return Ok(Found::Register(register)),
            Home::None => (Region::Locals, 0),
        };
        let mut address = Address::fixed(region, offset + place.offset);
        for index in &place.indices {
            let value = self.value(&index.value)?;
            self.span = index.value.span;
            self.step(&mut address, value, index.count, index.stride);
        }
        if region == Region::Input {
            let largest = address.index.map_or(0, |index| index.largest);
            let end = address.offset + largest + self.size_of(&place.ty);
            self.input = self.input.max(end);
        }
        Ok(Found::Memory(address))
    }

    /// The first byte of a variable in memory.
    pub(super) fn variable_address(&mut self, id: VariableId) -> Lowered<Address> {
        match self.home(id)? {
            Home::Memory(region, offset) => Ok(Address::fixed(region, offset)),
            Home::Register(_) | Home::None => Ok(Address::fixed(Region::Locals, 0)),
        }
    }

    /// The address of a place that is not a scalar local.
    pub(super) fn address(&mut self, place: &'t Place) -> Lowered<Address> {
        match self.find(place)? {
            Found::Memory(address) => Ok(address),
            // The checks make every register a scalar, which has no address.
            Found::Register(_) => Ok(Address::fixed(Region::Locals, 0)),
        }
    }

    /// Advances an address to element `index` of `count`.
    pub(super) fn step(&mut self, address: &mut Address, index: Operand, count: u32, stride: u32) {
        let register = match index {
            Operand::Constant(known) if (known as u64) < u64::from(count) => {
                address.offset += known as u32 * stride;
                return;
            }
            Operand::Constant(_) => return self.emit(Op::Fail(Fault::Index)),
            Operand::Register(_) => self.copy(index),
        };
        self.emit(Op::Bound {
            index: register,
            count,
        });
        let largest = count.saturating_sub(1) * stride;
        let stride = Operand::Constant(i64::from(stride));
        let distance = self.binary(Operator::Multiply, Operand::Register(register), stride);
        address.index = match (address.index, distance) {
            (None, Operand::Register(register)) => Some(Dynamic { register, largest }),
            (Some(before), Operand::Register(_)) => {
                let before_it = Operand::Register(before.register);
                let sum = self.binary(Operator::Add, before_it, distance);
                let largest = before.largest + largest;
                self.as_dynamic(sum, largest)
            }
            // The array has one element, at its beginning.
            (before, Operand::Constant(_)) => before,
        };
    }

    fn as_dynamic(&mut self, distance: Operand, largest: u32) -> Option<Dynamic> {
        let register = match distance {
            Operand::Register(register) => register,
            Operand::Constant(_) => self.copy(distance),
        };
        Some(Dynamic { register, largest })
    }

    /// A power of two that divides the address of this place: 1, 2, 4 or 8.
    pub(super) fn alignment(place: &Place) -> u32 {
        let strides = place
            .indices
            .iter()
            .fold(0, |all, index| all | index.stride);
        1 << (8 | place.offset | strides).trailing_zeros()
    }

    /// Reads a scalar. A `bool` is converted to 0 or 1, since its byte may have any value.
    pub(super) fn load(&mut self, from: Address, ty: &Type) -> Operand {
        let (bits, signed) = width(ty);
        let to = self.register();
        self.emit(Op::Load {
            to,
            from,
            bits,
            signed,
        });
        match ty {
            Type::Bool => self.truth(Operand::Register(to)),
            _ => Operand::Register(to),
        }
    }

    /// Writes a scalar.
    pub(super) fn store(&mut self, to: Address, value: Operand, ty: &Type) {
        let bits = width(ty).0;
        self.emit(Op::Store { to, value, bits });
    }
}

/// Bits of a scalar in memory, and whether it has a sign.
pub(super) fn width(ty: &Type) -> (u8, bool) {
    match ty {
        Type::Bool => (8, false),
        Type::Int(int) => (int.bits, int.signed),
        _ => (64, true),
    }
}
