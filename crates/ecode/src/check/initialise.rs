//! Initialisers, with C's rules for lists (C11 6.7.9): inner braces may be left out, the
//! designators `.field` and `[index]` name the next element, elements without a value are 0, and
//! the later of two values for one element counts.

use std::collections::BTreeMap;

use super::conversion::constant_of;
use super::{Checker, Operand, constant, cut};
use crate::ast::{self, Designator, Element, Initialiser};
use crate::source::Span;
use crate::tree::{Expression, ExpressionKind, Place};
use crate::types::Type;

/// An initialiser, resolved to values for parts of the variable.
#[derive(Default)]
pub(super) struct Filling {
    /// Scalars by their offset.
    scalars: BTreeMap<u32, Expression>,
    /// Whole arrays and structs.
    copies: Vec<(u32, Place)>,
    /// The string literal, if it initialises the whole variable.
    text: Option<Vec<u8>>,
    /// The number of elements of the outermost array, as far as the initialiser determines it.
    pub(super) elements: u32,
    /// The depth of nested lists.
    depth: u32,
    /// Whether an error was reported.
    failed: bool,
}

impl Filling {
    /// The bytes of the variable, if all values are constant.
    pub(super) fn bytes(&self, size: u32) -> Option<Vec<u8>> {
        let mut bytes = vec![0; size as usize];
        if let Some(text) = &self.text {
            bytes
                .iter_mut()
                .zip(text)
                .for_each(|(byte, from)| *byte = *from);
        }
        for (offset, value) in &self.scalars {
            constant::store(&mut bytes, *offset, &value.ty, constant_of(value)?);
        }
        self.copies.is_empty().then_some(bytes)
    }

    /// The value, if the variable is a scalar.
    pub(super) fn scalar(&self) -> Option<&Expression> {
        self.scalars.get(&0)
    }

    /// The place of the first value that is not constant.
    pub(super) fn not_constant(&self) -> Option<Span> {
        let scalars = self
            .scalars
            .values()
            .filter(|value| constant_of(value).is_none());
        let copies = self.copies.iter().map(|(_, from)| from.span);
        scalars
            .map(|value| value.span)
            .chain(copies)
            .min_by_key(|span| span.start)
    }

    /// The expression that gives a place this value.
    pub(super) fn into_expression(mut self, place: Place) -> Expression {
        let span = place.span;
        let void = |kind| Expression {
            kind,
            ty: Type::Void,
            span,
        };
        if let Some(text) = self.text {
            return void(ExpressionKind::FillText(place, text));
        }
        if place.ty.is_scalar() {
            let value = self.scalars.remove(&0);
            let value =
                value.unwrap_or_else(|| super::conversion::number(0, place.ty.clone(), span));
            return Expression {
                ty: place.ty.clone(),
                kind: ExpressionKind::Assign(place, Box::new(value)),
                span,
            };
        }
        let copy = |(offset, from): (u32, Place)| {
            let to = Place {
                offset: place.offset + offset,
                ty: from.ty.clone(),
                ..place.clone()
            };
            void(ExpressionKind::Copy { to, from })
        };
        let mut copies: Vec<_> = self.copies.into_iter().map(copy).collect();
        let whole = |copy: &Expression| match &copy.kind {
            ExpressionKind::Copy { to, .. } => to.ty == place.ty,
            _ => false,
        };
        if copies.len() == 1 && self.scalars.is_empty() && copies.iter().all(whole) {
            return copies.remove(0);
        }
        let fill = ExpressionKind::Fill(place.clone(), self.scalars.into_iter().collect());
        copies.into_iter().fold(void(fill), |all, copy| {
            void(ExpressionKind::Comma(Box::new(all), Box::new(copy)))
        })
    }
}

/// The elements of a list that have not been assigned yet.
struct Queue<'e> {
    elements: std::slice::Iter<'e, Element>,
    current: Option<&'e Element>,
    /// The value of the current element, if it was checked already.
    operand: Option<Operand>,
    /// Whether the designator of the current element was resolved.
    placed: bool,
}

impl<'e> Queue<'e> {
    fn new(elements: &'e [Element]) -> Queue<'e> {
        let mut elements = elements.iter();
        Queue {
            current: elements.next(),
            elements,
            operand: None,
            placed: false,
        }
    }

    fn next(&mut self) {
        self.current = self.elements.next();
        self.operand = None;
        self.placed = false;
    }

    /// The designator that has to be resolved next.
    fn designator(&self) -> Option<&'e Designator> {
        let current = self.current.filter(|_| !self.placed)?;
        current.designator.as_ref()
    }
}

/// The part of the variable that a list initialises.
#[derive(Clone, Copy)]
struct Target<'t> {
    ty: &'t Type,
    offset: u32,
    /// Whether it has braces of its own.
    braced: bool,
}

impl Checker<'_> {
    /// The initialiser of a variable of this type. `None`: an error has been reported.
    pub(super) fn filling(&mut self, ty: &Type, from: &Initialiser) -> Option<Filling> {
        let mut filling = Filling::default();
        if let Initialiser::Value(source) = from
            && let ast::ExpressionKind::Text(text) = &source.kind
            && ty.is_text()
        {
            filling.elements = text.len() as u32 + 1;
            filling.text = self.fitting_text(ty, text, source.span);
            return filling.text.is_some().then_some(filling);
        }
        self.fill(&mut filling, ty, 0, from);
        (!filling.failed).then_some(filling)
    }

    fn fill(&mut self, filling: &mut Filling, ty: &Type, offset: u32, from: &Initialiser) {
        match from {
            Initialiser::Value(source) => {
                let operand = self.expression(source);
                self.fill_operand(filling, ty, offset, operand, source.span);
            }
            Initialiser::List(elements, span) if ty.is_scalar() => match elements.as_slice() {
                [
                    Element {
                        designator: None,
                        value: value @ Initialiser::Value(_),
                    },
                ] => self.fill(filling, ty, offset, value),
                _ => {
                    let message = format!("{} takes one value", self.type_name(ty));
                    self.error_hint(*span, message, "write it without braces");
                    filling.failed = true;
                }
            },
            Initialiser::List(elements, _) => match elements.as_slice() {
                [
                    Element {
                        designator: None,
                        value: Initialiser::Value(source),
                    },
                ] if ty.is_text() && matches!(source.kind, ast::ExpressionKind::Text(_)) => {
                    let operand = self.expression(source);
                    if let (Operand::Text(text, _), 0) = (&operand, filling.depth) {
                        filling.elements = text.len() as u32 + 1;
                    }
                    self.fill_operand(filling, ty, offset, operand, source.span);
                }
                _ => {
                    let mut queue = Queue::new(elements);
                    let target = Target {
                        ty,
                        offset,
                        braced: true,
                    };
                    filling.depth += 1;
                    self.fill_list(filling, target, &mut queue);
                    filling.depth -= 1;
                    filling.failed |= queue.current.is_some();
                }
            },
        }
    }

    /// One value that was checked already.
    fn fill_operand(
        &mut self,
        filling: &mut Filling,
        ty: &Type,
        offset: u32,
        operand: Operand,
        span: Span,
    ) {
        match operand {
            Operand::Place(from) if from.ty == *ty && !ty.is_scalar() => {
                self.details(from.variable).read = true;
                filling.copies.push((offset, from));
            }
            Operand::Text(text, span) if ty.is_text() => match self.fitting_text(ty, &text, span) {
                Some(text) => fill_text(filling, ty, offset, &text, span),
                None => filling.failed = true,
            },
            operand if ty.is_scalar() => match self.scalar(operand, span) {
                Some(value) => {
                    let value = self.adapt(value, ty);
                    filling.scalars.insert(offset, value);
                }
                None => filling.failed = true,
            },
            Operand::Error => filling.failed = true,
            Operand::Text(..) if matches!(ty, Type::Array(..)) => {
                filling.failed = true;
                let message = format!("a text needs an array of char, not {}", self.type_name(ty));
                self.error_hint(span, message, "declare the array with the type char");
            }
            _ => {
                filling.failed = true;
                if *ty != Type::Error {
                    let message = format!("this is no value for {}", self.type_name(ty));
                    self.error_hint(span, message, "write { ... }, or a variable of this type");
                }
            }
        }
    }

    /// The elements of an array or the fields of a struct, from the remaining values.
    fn fill_list(&mut self, filling: &mut Filling, target: Target<'_>, queue: &mut Queue<'_>) {
        let mut at = 0u32;
        while let Some(current) = queue.current {
            if let Some(designator) = queue.designator() {
                if !target.braced {
                    return;
                }
                let Some(found) = self.designated(target.ty, designator) else {
                    filling.failed = true;
                    queue.next();
                    continue;
                };
                at = found;
                queue.placed = true;
            }
            let Some((ty, offset)) = self.member(target.ty, at) else {
                if target.braced {
                    self.too_many(target.ty, current);
                }
                return;
            };
            self.fill_member(filling, &ty, target.offset + offset, queue);
            at += 1;
            if filling.depth == 1 && target.braced {
                filling.elements = filling.elements.max(at);
            }
        }
    }

    /// The element or field with this number: its type and offset.
    fn member(&self, ty: &Type, at: u32) -> Option<(Type, u32)> {
        match ty {
            Type::Array(of, count) => {
                let stride = self.tree.structs.size(of)?;
                (at < *count).then(|| ((**of).clone(), at * stride))
            }
            Type::Struct(id) => {
                let field = self.tree.structs.all[*id].fields.get(at as usize)?;
                Some((field.ty.clone(), field.offset))
            }
            _ => None,
        }
    }

    /// One element or field; without braces it takes as many values as it has scalars.
    fn fill_member(&mut self, filling: &mut Filling, ty: &Type, at: u32, queue: &mut Queue<'_>) {
        let Some(current) = queue.current else {
            return;
        };
        let source = match &current.value {
            Initialiser::Value(source) => source,
            list @ Initialiser::List(..) => {
                self.forget(filling, ty, at);
                self.fill(filling, ty, at, list);
                return queue.next();
            }
        };
        let operand = match queue.operand.take() {
            Some(operand) => operand,
            None => self.expression(source),
        };
        let whole = match &operand {
            Operand::Place(place) => place.ty == *ty,
            Operand::Text(..) => ty.is_text(),
            Operand::Value(_) => false,
            Operand::Error => true,
        };
        if whole || !matches!(ty, Type::Array(..) | Type::Struct(_)) {
            self.forget(filling, ty, at);
            self.fill_operand(filling, ty, at, operand, source.span);
            return queue.next();
        }
        queue.operand = Some(operand);
        queue.placed = true;
        let target = Target {
            ty,
            offset: at,
            braced: false,
        };
        self.fill_list(filling, target, queue);
    }

    /// Discards the first value of a part that gets a second one.
    fn forget(&self, filling: &mut Filling, ty: &Type, at: u32) {
        let end = at + self.tree.structs.size(ty).unwrap_or(1).max(1);
        if filling.scalars.range(at..).next().is_some() {
            let former: Vec<u32> = filling.scalars.range(at..end).map(|(at, _)| *at).collect();
            for at in former {
                filling.scalars.remove(&at);
            }
        }
        if filling.copies.last().is_some_and(|(last, _)| *last >= at) {
            filling
                .copies
                .retain(|(former, _)| !(at..end).contains(former));
        }
    }

    /// The element or field that a designator names. `None`: an error has been reported.
    fn designated(&mut self, ty: &Type, designator: &Designator) -> Option<u32> {
        match (designator, ty) {
            (Designator::Index(source), Type::Array(_, count)) => {
                let (value, _) = self.constant_with_type(source, "an index")?;
                let index = u32::try_from(value).ok().filter(|index| index < count);
                if index.is_none() {
                    self.error_hint(source.span, outside(value, *count), last_element(*count));
                }
                index
            }
            (Designator::Field(name), Type::Struct(id)) => {
                let fields = &self.tree.structs.all[*id].fields;
                let found = fields.iter().position(|field| field.name == name.text);
                if found.is_none() {
                    self.no_field(*id, name);
                }
                found.map(|at| at as u32)
            }
            (Designator::Field(name), _) => {
                let message = format!("{} has no fields", self.type_name(ty));
                self.error_hint(name.span, message, "elements are named [index]");
                None
            }
            (Designator::Index(source), _) => {
                let message = format!("{} has no elements", self.type_name(ty));
                self.error_hint(source.span, message, "fields are named .field");
                None
            }
        }
    }

    fn too_many(&mut self, ty: &Type, current: &Element) {
        let span = match &current.value {
            Initialiser::Value(source) => source.span,
            Initialiser::List(_, span) => *span,
        };
        let hint = match ty {
            Type::Array(..) => "with [] in place of the number, the values are counted",
            _ => "each field has one value, in the order of the struct",
        };
        let message = match ty {
            Type::Array(_, count) => format!("more values than the {count} elements"),
            Type::Struct(id) => {
                let laid = &self.tree.structs.all[*id];
                let (name, fields) = (cut(&laid.name), laid.fields.len());
                format!("more values than the {fields} fields of struct {name}")
            }
            _ => return,
        };
        self.error_hint(span, message, hint);
    }
}

fn fill_text(filling: &mut Filling, ty: &Type, offset: u32, text: &[u8], span: Span) {
    let Type::Array(of, _) = ty else {
        return;
    };
    for (at, byte) in (offset..).zip(text) {
        let value = i64::from(byte.cast_signed());
        filling
            .scalars
            .insert(at, super::conversion::number(value, (**of).clone(), span));
    }
}

/// Whether a constant index is outside.
/// The index to write instead of one that is outside.
pub(super) fn last_element(count: u32) -> String {
    format!("the first element is [0], the last [{}]", count - 1)
}

pub(super) fn outside(index: i64, count: u32) -> String {
    format!(
        "index {index} is outside: the array has {count} elements, 0 to {}",
        count - 1
    )
}
