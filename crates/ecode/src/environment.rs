//! What a program may name besides its own things: where it is to run decides that, and says it
//! here. Nothing else about the surroundings reaches the compiler.

use crate::tree::Builtin;
use crate::types::Type;

/// Where a program is to run.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The event's data: the service's format, `u64 cookie; u16 port; char comm[16]`. `None`: the
    /// text declares its own `struct input`, or has none.
    pub input: Option<String>,
    /// Names of the service's kinds in order: constants, compared with `event.kind`.
    pub kinds: Vec<String>,
    /// Names of the channel's attributes, in order of their numbers.
    pub attributes: Vec<String>,
    /// Names of the sinks' attributes; `None`: there are no sinks here.
    pub sinks: Option<Vec<String>>,
    /// Services that may be raised: name and index.
    pub services: Vec<(String, u32)>,
    /// Constants (`NUM_RESOURCES`), of type `int` or, if too large, `long`.
    pub constants: Vec<(String, i64)>,
    /// What the subscription has no right to.
    pub denied: Vec<Denied>,
}

/// A request that the subscription may not make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Which (numbers in it do not matter).
    pub builtin: Builtin,
    /// Why, for the message: "signals need ...".
    pub reason: &'static str,
}

/// A field of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatField {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
}
