//! The kernel's debug information about a program: the name of its function, and the line of the
//! text for each instruction (`struct bpf_func_info`, `bpf_line_info`, and the type format BTF that
//! both refer to). `bpftool prog dump xlated linum` and the verifier's messages show it.
//!
//! The kernel does not require it here, since there is only one function; so it is made only on
//! request.

use super::Object;
use crate::source::Source;

/// The pieces, as BPF_BTF_LOAD and BPF_PROG_LOAD take them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    pub btf: Vec<u8>,
    /// Records of [`FUNC_INFO_BYTES`].
    pub func_info: Vec<u8>,
    /// Records of [`LINE_INFO_BYTES`].
    pub line_info: Vec<u8>,
}

/// u32 instruction, u32 type.
pub const FUNC_INFO_BYTES: u32 = 8;
/// u32 instruction, u32 name of the file, u32 line's text, u32 line << 10 | column.
pub const LINE_INFO_BYTES: u32 = 16;

const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: u32 = 24;
const KIND_INT: u32 = 1;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const INT_SIGNED: u32 = 1 << 24;
const TYPE_INT: u32 = 1;
const TYPE_PROTO: u32 = 2;
const TYPE_FUNC: u32 = 3;
/// Larger lines and columns are left out.
const MOST_LINES: u32 = 1 << 22;
const MOST_COLUMNS: u32 = 1 << 10;

/// Concatenated strings; the first is empty.
struct Strings(Vec<u8>);

impl Strings {
    fn add(&mut self, text: &str) -> u32 {
        let at = self.0.len() as u32;
        // The kernel accepts only printable characters.
        let shown = text.chars().map(|c| {
            if c == ' ' || c.is_ascii_graphic() {
                c
            } else {
                '?'
            }
        });
        self.0.extend(shown.map(|c| c as u8));
        self.0.push(0);
        at
    }
}

/// Describes a program that came of `source`.
pub fn describe(object: &Object, source: &Source) -> Description {
    let mut strings = Strings(vec![0]);
    let mut types = Vec::new();
    let int = strings.add("int");
    words(&mut types, &[int, KIND_INT << 24, 4, INT_SIGNED | 32]);
    words(&mut types, &[0, KIND_FUNC_PROTO << 24, TYPE_INT]);
    let name = strings.add("ecode");
    words(&mut types, &[name, KIND_FUNC << 24, TYPE_PROTO]);
    let mut func_info = Vec::new();
    words(&mut func_info, &[0, TYPE_FUNC]);
    let line_info = lines(object, source, &mut strings);
    let mut btf = Vec::new();
    btf.extend(MAGIC.to_le_bytes());
    btf.extend([1, 0]);
    let (type_bytes, string_bytes) = (types.len() as u32, strings.0.len() as u32);
    words(
        &mut btf,
        &[HEADER_BYTES, 0, type_bytes, type_bytes, string_bytes],
    );
    btf.extend(types);
    btf.extend(strings.0);
    Description {
        btf,
        func_info,
        line_info,
    }
}

fn lines(object: &Object, source: &Source, strings: &mut Strings) -> Vec<u8> {
    let file = strings.add(&source.name);
    let mut info = Vec::new();
    let mut last = None;
    for (instruction, span) in &object.spans {
        let place = source.position(span.start);
        let (line, column) = (
            place.line.min(MOST_LINES - 1),
            place.column.min(MOST_COLUMNS - 1),
        );
        // Instructions of one line are often consecutive: they share one string.
        let text = match last {
            Some((known, text)) if known == line => text,
            _ => strings.add(source.line(place.line).trim()),
        };
        last = Some((line, text));
        words(&mut info, &[*instruction, file, text, line << 10 | column]);
    }
    info
}

fn words(out: &mut Vec<u8>, words: &[u32]) {
    out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}
