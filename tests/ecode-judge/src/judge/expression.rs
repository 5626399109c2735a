//! Expressions: their value, a number of their type; of void ones, 0.

use ecode::tree::{Expression, ExpressionKind, Place};
use ecode::types::Type;

use super::number::{combine, convert, cut, from_bytes};
use super::{Ended, Run};

impl Run<'_> {
    pub(super) fn value(&mut self, e: &Expression) -> Ended<i128> {
        match &e.kind {
            ExpressionKind::Constant(value) => Ok(cut(i128::from(*value), &e.ty)),
            ExpressionKind::Load(place) => {
                let at = self.find(place)?;
                Ok(self.read(at, &place.ty))
            }
            ExpressionKind::Arithmetic(operator, a, b) => {
                let (a, b) = (self.value(a)?, self.value(b)?);
                Ok(combine(*operator, a, b, &e.ty))
            }
            ExpressionKind::Compare(operator, a, b) => {
                let (a, b) = (self.value(a)?, self.value(b)?);
                Ok(combine(*operator, a, b, &e.ty))
            }
            ExpressionKind::Negate(a) => Ok(cut(-self.value(a)?, &e.ty)),
            ExpressionKind::Complement(a) => Ok(cut(!self.value(a)?, &e.ty)),
            ExpressionKind::Not(a) => Ok(i128::from(self.value(a)? == 0)),
            ExpressionKind::And(a, b) => Ok(match self.value(a)? {
                0 => 0,
                _ => self.value(b)?,
            }),
            ExpressionKind::Or(a, b) => Ok(match self.value(a)? {
                0 => self.value(b)?,
                _ => 1,
            }),
            ExpressionKind::Choice(condition, a, b) => match self.value(condition)? {
                0 => self.value(b),
                _ => self.value(a),
            },
            ExpressionKind::Comma(a, b) => {
                self.value(a)?;
                self.value(b)
            }
            ExpressionKind::Convert(a) => Ok(convert(self.value(a)?, &a.ty, &e.ty)),
            ExpressionKind::Assign(place, b) => {
                let at = self.find(place)?;
                let value = self.value(b)?;
                self.write(at, value, &place.ty);
                Ok(value)
            }
            ExpressionKind::Update { .. } => self.update(e),
            ExpressionKind::Call(id, arguments) => self.call(*id, arguments),
            ExpressionKind::Builtin(builtin, arguments) => self.builtin(*builtin, arguments, e),
            _ => self.whole(e),
        }
    }

    fn update(&mut self, e: &Expression) -> Ended<i128> {
        let ExpressionKind::Update {
            place,
            operator,
            compute,
            by,
            old,
        } = &e.kind
        else {
            unreachable!("an update");
        };
        let at = self.find(place)?;
        let by = self.value(by)?;
        let before = self.read(at, &place.ty);
        let result = combine(*operator, convert(before, &place.ty, compute), by, compute);
        let after = convert(result, compute, &place.ty);
        self.write(at, after, &place.ty);
        Ok(if *old { before } else { after })
    }

    /// What works on arrays, structs, strings and sinks.
    fn whole(&mut self, e: &Expression) -> Ended<i128> {
        match &e.kind {
            ExpressionKind::Copy { to, from } => {
                let (to_at, from_at) = (self.find(to)?, self.find(from)?);
                let bytes = self.read_bytes(from_at, self.size(&to.ty));
                self.write_bytes(to_at, &bytes);
            }
            ExpressionKind::Fill(place, values) => {
                let (id, at) = self.find(place)?;
                self.write_bytes((id, at), &vec![0; self.size(&place.ty)]);
                for (offset, value) in values {
                    let number = self.value(value)?;
                    self.write((id, at + *offset as usize), number, &value.ty);
                }
            }
            ExpressionKind::FillText(place, text) => {
                let at = self.find(place)?;
                let mut bytes = text.clone();
                bytes.resize(self.size(&place.ty), 0);
                self.write_bytes(at, &bytes);
            }
            ExpressionKind::CompareText { text, with, prefix } => {
                let text = self.text(text)?;
                let holds = if *prefix {
                    text.starts_with(with)
                } else {
                    text == *with
                };
                return Ok(i128::from(holds));
            }
            ExpressionKind::ComparePlaces { text, with, prefix } => {
                let (text, with) = (self.text(text)?, self.text(with)?);
                let holds = if *prefix {
                    text.starts_with(&with)
                } else {
                    text == with
                };
                return Ok(i128::from(holds));
            }
            ExpressionKind::Length(place) => return Ok(self.text(place)?.len() as i128),
            ExpressionKind::NextSink(after) => {
                let after = self.value(after)?;
                let next = (0..64).filter(|at| self.present >> at & 1 != 0);
                return Ok(next.map(i128::from).find(|at| *at > after).unwrap_or(-1));
            }
            ExpressionKind::Best { count, sink, key } => self.best(count, *sink, key)?,
            other => unreachable!("{other:?}"),
        }
        Ok(0)
    }

    pub(super) fn size(&self, ty: &Type) -> usize {
        self.tree.structs.size(ty).expect("a size") as usize
    }

    fn read(&mut self, at: (ecode::tree::VariableId, usize), ty: &Type) -> i128 {
        let bytes = self.read_bytes(at, self.size(ty));
        from_bytes(&bytes, ty)
    }

    fn write(&mut self, at: (ecode::tree::VariableId, usize), value: i128, ty: &Type) {
        let bytes = &value.to_le_bytes()[..self.size(ty)];
        self.write_bytes(at, bytes);
    }

    /// A string up to its first 0.
    fn text(&mut self, place: &Place) -> Ended<Vec<u8>> {
        let at = self.find(place)?;
        let mut bytes = self.read_bytes(at, self.size(&place.ty));
        if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
            bytes.truncate(end);
        }
        Ok(bytes)
    }
}
