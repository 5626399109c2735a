//! The types of E-code and where their values lie in memory: C's, on every machine as on x86-64.
//!
//! An integer in a register is always 64 bits wide: the value of its type, extended by its sign or
//! by zeros. In memory it has its own size and lies at a multiple of it; structs are laid out as C
//! lays them out.

/// An integer type: `char` is 8 bits with sign, `bool` is 8 bits without and only 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Int {
    /// 8, 16, 32 or 64.
    pub bits: u8,
    /// Whether it has a sign.
    pub signed: bool,
}

/// Shorthands for the integer types that the rules of C name.
impl Int {
    pub const INT: Int = Int::new(32, true);
    pub const UNSIGNED: Int = Int::new(32, false);
    pub const LONG: Int = Int::new(64, true);
    pub const UNSIGNED_LONG: Int = Int::new(64, false);
    pub const CHAR: Int = Int::new(8, true);

    /// A type by width and sign.
    pub const fn new(bits: u8, signed: bool) -> Int {
        Int { bits, signed }
    }

    /// Bytes in memory.
    pub const fn bytes(self) -> u32 {
        self.bits as u32 / 8
    }

    /// The number that a value of this type, extended to 64 bits, stands for.
    pub fn exact(self, value: i64) -> i128 {
        match self.signed {
            true => value.into(),
            false => (value as u64).into(),
        }
    }

    /// A 64-bit value cut to this type and extended again: the result of a conversion to it.
    pub const fn wrap(self, value: i64) -> i64 {
        let unused = 64 - self.bits as u32;
        if self.signed {
            value << unused >> unused
        } else {
            ((value as u64) << unused >> unused) as i64
        }
    }
}

/// Units of a [`Type::Fixed`]: it counts millionths.
pub const FIXED_ONE: i64 = 1_000_000;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Type {
    /// No value: the result of a function without a result, or of a statement.
    #[default]
    Void,
    /// 0 or 1, one byte: the result of a comparison. Converts to and from integers as in C.
    Bool,
    /// An integer. `enum` types are `int`.
    Int(Int),
    /// A decimal number: 64 bits with sign that count millionths.
    Fixed,
    /// A fixed number of elements; an array of `char` is a string.
    Array(Box<Type>, u32),
    /// A struct, by its place in [`Structs`].
    Struct(usize),
    /// A sink of the channel: the variable of `for (s in sinks)`.
    Sink,
    /// The type of an expression with an error, about which nothing more is reported.
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub ty: Type,
    /// Bytes from the beginning of the struct.
    pub offset: u32,
}

/// A struct with its layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Struct {
    pub name: String,
    pub fields: Vec<Field>,
    /// Bytes, a multiple of `align`.
    pub size: u32,
    /// The alignment of its address.
    pub align: u32,
}

impl Struct {
    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// All structs of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Structs {
    /// [`Type::Struct`] is a place in here.
    pub all: Vec<Struct>,
}

impl Structs {
    /// Lays fields out as C does. `None`: larger than 4 GiB.
    pub fn lay_out(&self, name: &str, fields: &[(String, Type)]) -> Option<Struct> {
        let mut laid = Struct {
            name: name.to_owned(),
            fields: Vec::with_capacity(fields.len()),
            size: 0,
            align: 1,
        };
        for (name, ty) in fields {
            let align = self.align(ty);
            let offset = laid.size.checked_next_multiple_of(align)?;
            laid.size = offset.checked_add(self.size(ty)?)?;
            laid.align = laid.align.max(align);
            laid.fields.push(Field {
                name: name.clone(),
                ty: ty.clone(),
                offset,
            });
        }
        laid.size = laid.size.checked_next_multiple_of(laid.align)?;
        Some(laid)
    }

    /// Bytes of a value of this type. `None`: more than 4 GiB.
    pub fn size(&self, ty: &Type) -> Option<u32> {
        Some(match ty {
            Type::Void | Type::Error => 0,
            Type::Bool => 1,
            Type::Int(int) => int.bytes(),
            Type::Fixed | Type::Sink => 8,
            Type::Array(of, count) => self.size(of)?.checked_mul(*count)?,
            Type::Struct(at) => self.all[*at].size,
        })
    }

    /// The alignment of a value of this type.
    pub fn align(&self, ty: &Type) -> u32 {
        match ty {
            Type::Array(of, _) => self.align(of),
            Type::Struct(at) => self.all[*at].align,
            Type::Void | Type::Error | Type::Bool => 1,
            Type::Int(int) => int.bytes(),
            Type::Fixed | Type::Sink => 8,
        }
    }

    /// The type as it is written.
    pub fn name(&self, ty: &Type) -> String {
        match ty {
            Type::Void => "void".into(),
            Type::Error => "?".into(),
            Type::Bool => "bool".into(),
            Type::Fixed => "fixed".into(),
            Type::Sink => "sink".into(),
            Type::Int(Int::CHAR) => "char".into(),
            Type::Int(int) => {
                let sign = if int.signed { "" } else { "unsigned " };
                let width = match int.bits {
                    8 => "char",
                    16 => "short",
                    32 => "int",
                    _ => "long",
                };
                format!("{sign}{width}")
            }
            Type::Array(of, count) => {
                // C writes the outermost dimension first.
                let (mut of, mut dimensions) = (of, format!("[{count}]"));
                while let Type::Array(inner, count) = &**of {
                    dimensions += &format!("[{count}]");
                    of = inner;
                }
                format!("{}{dimensions}", self.name(of))
            }
            Type::Struct(at) => format!("struct {}", self.all[*at].name),
        }
    }
}

impl Type {
    /// Whether values of it fit a register, so that operators apply to them.
    pub fn is_scalar(&self) -> bool {
        matches!(self, Type::Bool | Type::Int(_) | Type::Fixed)
    }

    /// Whether it is a string: an array of `char`.
    pub fn is_text(&self) -> bool {
        matches!(self, Type::Array(of, _) if **of == Type::Int(Int::CHAR))
    }
}
