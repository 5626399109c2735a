//! What the language itself offers.

use ecode::frame::{at, effect, hash, random};
use ecode::limits;
use ecode::tree::{Builtin, EventField, Expression, Fault, VariableId};
use ecode::types::{Int, Type};

use super::number::{cut, from_bytes};
use super::{Ended, Run, Stop};
use crate::world::{Effect, Sink};

impl Run<'_> {
    pub(super) fn builtin(
        &mut self,
        builtin: Builtin,
        arguments: &[Expression],
        e: &Expression,
    ) -> Ended<i128> {
        let mut values = [0; 3];
        for (argument, value) in arguments.iter().zip(&mut values) {
            *value = self.value(argument)?;
        }
        let [a, b, c] = values;
        Ok(match builtin {
            Builtin::Event(field) => self.event(field),
            Builtin::Now => i128::from(self.world.now),
            Builtin::Min => a.min(b),
            Builtin::Max => a.max(b),
            Builtin::Clamp => a.max(b).min(c),
            Builtin::Abs => cut(a.abs(), &e.ty),
            Builtin::Hash => i128::from(hash(a as u64)),
            Builtin::Random => {
                self.random = random(self.random);
                i128::from(self.random)
            }
            Builtin::Attribute(number) => i128::from(self.world.attributes[number as usize]),
            Builtin::SinkAttribute(number) => i128::from(self.sink(a).attributes[number as usize]),
            Builtin::SinkId => i128::from(self.sink(a).id),
            Builtin::SinkAge => i128::from(self.world.now.wrapping_sub(self.sink(a).told)),
            Builtin::Accept => self.judged(1 << a, 0),
            Builtin::Reject => self.judged(0, 1 << a),
            Builtin::Once(memory) => i128::from(self.once(memory, a as u64, b as u64)),
            Builtin::Signal => self.request(effect::SIGNAL, a, [b, 0, 0])?,
            Builtin::Raise(service) => {
                self.request(effect::RAISE, i128::from(service), [a, b, c])?
            }
            Builtin::Defer => self.request(effect::DEFER, 0, [a, 0, 0])?,
            Builtin::Drop => {
                self.drop = Some(a as u8);
                return Err(Stop::End(0));
            }
            Builtin::Count => self.request(effect::COUNT, a, [b, 0, 0])?,
            Builtin::Histogram => self.request(effect::HISTOGRAM, 0, [a, 0, 0])?,
        })
    }

    fn header(&self, offset: u32, field: EventField) -> i128 {
        let ty = field.ty();
        let offset = offset as usize;
        from_bytes(&self.world.header[offset..offset + self.size(&ty)], &ty)
    }

    fn event(&self, field: EventField) -> i128 {
        let offset = match field {
            EventField::Service => at::EVENT_SERVICE,
            EventField::Kind => at::EVENT_KIND,
            EventField::Time => at::EVENT_TIME,
            EventField::Deadline => at::EVENT_DEADLINE,
            EventField::TimeLeft => {
                let deadline = self.header(at::EVENT_DEADLINE, EventField::Deadline);
                return match deadline {
                    0 => i128::from(i64::MAX),
                    _ => cut(deadline - i128::from(self.world.now), &Type::Int(Int::LONG)),
                };
            }
            EventField::Id => at::EVENT_ID,
            EventField::Pid => at::EVENT_PID,
            EventField::Tid => at::EVENT_TID,
            EventField::Uid => at::EVENT_UID,
            EventField::Cpu => at::EVENT_CPU,
            EventField::Type => at::EVENT_TYPE,
            EventField::Priority => at::EVENT_PRIORITY,
            EventField::Size => at::EVENT_SIZE,
        };
        self.header(offset, field)
    }

    fn sink(&self, number: i128) -> &Sink {
        self.world.sinks[number as usize]
            .as_ref()
            .expect("the sink exists")
    }

    fn judged(&mut self, accepted: u64, rejected: u64) -> i128 {
        self.accepted = (self.accepted | accepted) & !rejected;
        self.rejected = (self.rejected | rejected) & !accepted;
        0
    }

    fn request(&mut self, kind: u32, number: i128, values: [i128; 3]) -> Ended<i128> {
        if self.effects.len() >= limits::EFFECTS as usize {
            return Err(Stop::Fault(Fault::Effects));
        }
        let values = values.map(|value| value as u64);
        self.effects.push(Effect {
            kind,
            number: number as u32,
            values,
        });
        Ok(0)
    }

    fn once(&mut self, memory: VariableId, key: u64, ttl_us: u64) -> bool {
        let now = self.world.now;
        let place = (hash(key) % u64::from(limits::ONCE_ENTRIES)) as usize * 16;
        let entry = &mut self.bytes(memory)[place..place + 16];
        let word = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes"));
        let (known, then) = (word(0), word(8));
        let ago_ns = (now.wrapping_sub(then) as i64).max(0) as u64;
        if known == key && then != 0 && ago_ns / 1000 < ttl_us {
            return false;
        }
        entry[..8].copy_from_slice(&key.to_le_bytes());
        entry[8..].copy_from_slice(&now.to_le_bytes());
        true
    }

    pub(super) fn best(
        &mut self,
        count: &Expression,
        sink: VariableId,
        key: &Expression,
    ) -> Ended<()> {
        let count = self.value(count)?;
        let mut keys = Vec::new();
        let present = self.present;
        for at in (0..64).filter(|at| present >> at & 1 != 0) {
            self.burn()?;
            self.declare(sink, at);
            keys.push((self.value(key)?, at));
        }
        // The greatest key first; of equal ones, the first sink.
        keys.sort_by_key(|(key, at)| (-key, *at));
        for ((_, at), rank) in keys.into_iter().zip(0..) {
            if rank < count {
                self.judged(1 << at, 0);
            } else {
                self.judged(0, 1 << at);
            }
        }
        Ok(())
    }
}
