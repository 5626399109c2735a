//! A program as text, one instruction a line, in the kernel's own notation (as its verifier and
//! bpftool write it), with the lines of the text that the instructions came from in between.

use std::fmt::Write;

use super::encode::code;
use super::inspect::Parts;
use super::{Map, Object};
use crate::source::Source;

/// The text; with `source`, its lines too.
pub fn disassemble(object: &Object, source: Option<&Source>) -> String {
    let mut text = String::new();
    let mut line = 0;
    let mut rest = object.instructions.iter().zip(0u32..);
    while let Some((word, at)) = rest.next() {
        if let Some(source) = source {
            let next = source.position(object.span(at).start).line;
            if next != line {
                line = next;
                let _ = writeln!(text, "; {line}: {}", source.line(line).trim());
            }
        }
        let inst = Parts::of(*word);
        let shown = if inst.code == code::WIDE {
            let high = rest.next().map_or(0, |(word, _)| Parts::of(*word).constant);
            let map = object
                .maps
                .iter()
                .find(|map| map.instruction == at)
                .map(|map| map.map);
            wide(&inst, high, map)
        } else {
            inst.text(at)
        };
        let _ = writeln!(text, "{at:5}: {shown}");
    }
    text
}

fn wide(inst: &Parts, high: i32, map: Option<Map>) -> String {
    let to = inst.to;
    match map {
        Some(map) if inst.from == code::SOURCE_MAP_VALUE => {
            format!("r{to} = &{}[0]", name(map))
        }
        Some(map) => format!("r{to} = {}", name(map)),
        None => {
            let value = u64::from(high as u32) << 32 | u64::from(inst.constant as u32);
            format!("r{to} = {value:#x} ll")
        }
    }
}

fn name(map: Map) -> &'static str {
    match map {
        Map::Frame => "frame",
        Map::Event => "event",
        Map::State => "state",
        Map::Attributes => "attributes",
        Map::Sinks => "sinks",
    }
}

impl Parts {
    fn text(&self, at: u32) -> String {
        match self.code & 7 {
            0x04 | 0x07 => self.arithmetic(),
            0x05 | 0x06 => self.jump(at),
            _ => self.memory(),
        }
    }

    fn place(&self, register: u8) -> String {
        let size = match self.code & 0x18 {
            0x00 => "32",
            0x08 => "16",
            0x10 => "8",
            _ => "64",
        };
        let sign = if self.code & 0xe7 == code::LOAD_SIGNED {
            's'
        } else {
            'u'
        };
        format!("*({sign}{size} *)(r{register} {:+})", self.offset)
    }

    fn memory(&self) -> String {
        match self.code & 0xe7 {
            code::STORE_CONSTANT => format!("{} = {}", self.place(self.to), self.constant),
            code::STORE => format!("{} = r{}", self.place(self.to), self.from),
            code::ATOMIC => {
                let operator = operator(self.constant as u8).unwrap_or("?");
                let place = self.place(self.to);
                let old = match self.constant & code::FETCH {
                    0 => String::new(),
                    _ => format!("r{} = ", self.from),
                };
                format!("{old}lock {place} {operator}= r{}", self.from)
            }
            _ => format!("r{} = {}", self.to, self.place(self.from)),
        }
    }

    fn arithmetic(&self) -> String {
        let letter = if self.code & 7 == code::ALU32 {
            'w'
        } else {
            'r'
        };
        let to = format!("{letter}{}", self.to);
        let operand = self.operand_text(letter);
        let signed = if self.offset != 0 { "s" } else { "" };
        match self.code & 0xf0 {
            code::NEGATE => format!("{to} = -{to}"),
            code::MOVE if self.offset != 0 => format!("{to} = (s{}){operand}", self.offset),
            code::MOVE => format!("{to} = {operand}"),
            0xc0 => format!("{to} s>>= {operand}"),
            other => format!("{to} {signed}{}= {operand}", operator(other).unwrap_or("?")),
        }
    }

    fn operand_text(&self, letter: char) -> String {
        if self.code & code::REGISTER != 0 {
            format!("{letter}{}", self.from)
        } else {
            self.constant.to_string()
        }
    }

    fn jump(&self, at: u32) -> String {
        let target = i64::from(at) + 1 + i64::from(self.offset);
        match self.code {
            code::CALL => return "call bpf_map_lookup_elem".to_owned(),
            code::EXIT => return "exit".to_owned(),
            code::JUMP => return format!("goto {target}"),
            code::MAY_GOTO => return format!("may_goto {target}"),
            _ => {}
        }
        let test = match self.code & 0xf0 {
            0x10 => "==",
            0x20 => ">",
            0x30 => ">=",
            0x40 => "&",
            0x50 => "!=",
            0x60 => "s>",
            0x70 => "s>=",
            0xa0 => "<",
            0xb0 => "<=",
            0xc0 => "s<",
            0xd0 => "s<=",
            _ => "?",
        };
        format!(
            "if r{} {test} {} goto {target}",
            self.to,
            self.operand_text('r')
        )
    }
}

fn operator(code: u8) -> Option<&'static str> {
    Some(match code & 0xf0 {
        0x00 => "+",
        0x10 => "-",
        0x20 => "*",
        0x30 => "/",
        0x40 => "|",
        0x50 => "&",
        0x60 => "<<",
        0x70 => ">>",
        0x90 => "%",
        0xa0 => "^",
        _ => return None,
    })
}
