//! What the author of a program has to remember: types, variables, functions.

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Int(&'static str),
    Bool,
    Fixed,
    /// An array of so many characters.
    Text(u64),
    Array(Box<Shape>, u64),
    /// A place in the author's structs.
    Struct(usize),
}

/// What operators work on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Int,
    Fixed,
}

#[derive(Clone, Debug)]
pub(super) struct Struct {
    pub(super) name: String,
    pub(super) fields: Vec<(String, Shape)>,
}

#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) shape: Shape,
    pub(super) writable: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) parameters: Vec<Kind>,
    pub(super) result: Option<Kind>,
}

impl Shape {
    /// The declaration of a variable of this type, as C writes it.
    pub(super) fn declared(&self, name: &str, structs: &[Struct]) -> String {
        match self {
            Shape::Int(ty) => format!("{ty} {name}"),
            Shape::Bool => format!("bool {name}"),
            Shape::Fixed => format!("fixed {name}"),
            Shape::Text(count) => format!("char {name}[{count}]"),
            Shape::Array(of, count) => of.declared(&format!("{name}[{count}]"), structs),
            Shape::Struct(at) => format!("struct {} {name}", structs[*at].name),
        }
    }

    /// What kind of value it is, if it is one.
    pub(super) fn kind(&self) -> Option<Kind> {
        match self {
            Shape::Int(_) | Shape::Bool => Some(Kind::Int),
            Shape::Fixed => Some(Kind::Fixed),
            Shape::Text(_) | Shape::Array(..) | Shape::Struct(_) => None,
        }
    }
}
