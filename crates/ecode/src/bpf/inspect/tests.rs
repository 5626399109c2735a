//! Programs of the compiler with one change each, which must not reach the kernel.

use super::*;
use crate::bpf::{MapUse, Options};
use crate::environment::Environment;
use crate::source::Source;

const ALL: [Map; 4] = [Map::Frame, Map::Event, Map::State, Map::Attributes];

/// A filter with all that the compiler knows: memory of all kinds, a loop, a branch.
fn object() -> Object {
    let text = "static long seen[4]; struct output { u64 a; };\n\
                { long sum = 0; for (int i = 0; i < 4; i++) { seen[i] += bytes; sum += seen[i]; }\n\
                output.a = sum; return sum > attr(\"load\") ? 1 : 0; }";
    let environment = Environment {
        input: Some("u64 bytes".into()),
        attributes: vec!["load".into()],
        ..Environment::default()
    };
    let options = Options { secret: Some(7) };
    let source = Source::new("filter", text);
    let compiled = crate::compile_with(&source, &environment, &options);
    compiled
        .unwrap_or_else(|told| panic!("{}", told.render(&source)))
        .object
}

fn word(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> u64 {
    u64::from(code)
        | u64::from(to) << 8
        | u64::from(from) << 12
        | u64::from(offset as u16) << 16
        | u64::from(constant as u32) << 32
}

const EXIT: u64 = 0x95;
const RETURN_0: u64 = 0xb7;

/// The lookup of the frame, these instructions behind it, and the end. The frame is in r6.
fn with(middle: &[u64]) -> Object {
    let mut instructions = vec![
        word(0x62, 10, 0, -4, 0),
        word(0x18, 1, 1, 0, 0),
        0,
        word(0xbf, 2, 10, 0, 0),
        word(0x07, 2, 0, 0, -4),
        word(0x85, 0, 0, 0, 1),
        word(0x15, 0, 0, middle.len() as i16 + 1, 0),
        word(0xbf, 6, 0, 0, 0),
    ];
    instructions.extend(middle);
    instructions.extend([RETURN_0, EXIT]);
    Object {
        instructions,
        maps: vec![MapUse {
            instruction: 1,
            map: Map::Frame,
        }],
        ..Object::default()
    }
}

fn why(object: &Object) -> &'static str {
    match inspect(object, &ALL) {
        Ok(()) => "all is well",
        Err(foreign) => foreign.why,
    }
}

#[test]
fn programs_of_the_compiler_pass() {
    assert_eq!(inspect(&object(), &ALL), Ok(()));
    assert_eq!(why(&with(&[word(0x7a, 6, 0, 16, 1)])), "all is well");
}

#[test]
fn only_listed_maps_are_looked_up() {
    let object = object();
    assert_eq!(
        inspect(&object, &[Map::Frame, Map::Event]).map_err(|no| no.why),
        Err("a map that is not there for it")
    );
    let mut other = object.clone();
    other.maps.pop();
    assert!(inspect(&other, &ALL).is_err(), "one that is not listed");
    let mut other = object.clone();
    other.instructions[other.maps[0].instruction as usize] |= 5 << 32;
    assert!(inspect(&other, &ALL).is_err(), "a descriptor of its own");
    let mut other = object.clone();
    other.maps.push(MapUse {
        instruction: 0,
        map: Map::State,
    });
    assert!(inspect(&other, &ALL).is_err(), "listed where none is");
    let mut other = object;
    other.maps[0].instruction = 60_000;
    assert!(inspect(&other, &ALL).is_err(), "listed outside");
}

#[test]
fn forms_that_the_compiler_does_not_use_are_foreign() {
    let none = "no instruction of E-code";
    for (what, instruction, expected) in [
        ("another helper", word(0x85, 0, 0, 0, 6), none),
        ("a function of its own", word(0x85, 0, 1, 0, 1), none),
        ("a kernel function", word(0x85, 0, 2, 0, 1000), none),
        ("a lookup without its map", word(0x85, 0, 0, 0, 1), none),
        ("bytes swapped", word(0xd4, 6, 0, 0, 16), none),
        ("an exchange", word(0xdb, 6, 0, 16, 0xe1), none),
        ("a comparing exchange", word(0xdb, 6, 0, 16, 0xf1), none),
        (
            "a difference that comes back",
            word(0xdb, 6, 0, 16, 0x11),
            none,
        ),
        ("a packet", word(0x20, 0, 0, 0, 0), none),
        ("a long jump", word(0x06, 0, 0, 0, 1), none),
        ("another conditional jump", word(0xe5, 0, 1, 1, 0), none),
        ("an address cast", word(0xbf, 0, 6, 1, 1), none),
        ("left over bits", word(0xb7, 0, 3, 0, 0), none),
        (
            "register 11",
            word(0xb7, 11, 0, 0, 0),
            "a register that does not exist",
        ),
        (
            "a new stack",
            word(0xb7, 10, 0, 0, 0),
            "it changes where the stack is",
        ),
        (
            "a jump out",
            word(0x05, 0, 0, 99, 0),
            "a jump to where no instruction begins",
        ),
        (
            "a jump into a lookup",
            word(0x05, 0, 0, -7, 0),
            "a jump to where no instruction begins",
        ),
        (
            "a jump to the map",
            word(0x05, 0, 0, -8, 0),
            "a jump to before a lookup",
        ),
    ] {
        assert_eq!(why(&with(&[instruction])), expected, "{what}");
    }
    let cut = Object {
        instructions: with(&[]).instructions[..7].to_vec(),
        ..with(&[])
    };
    assert_eq!(why(&cut), "a jump to where no instruction begins");
    assert_eq!(why(&Object::default()), "no end");
    let mut open = with(&[word(0xb7, 0, 0, 0, 0)]);
    open.instructions.truncate(9);
    open.instructions[6] = word(0x15, 0, 0, 0, 0);
    assert_eq!(why(&open), "no end");
}

#[test]
fn constants_name_no_object_of_the_kernel() {
    for source in [1, 2, 3, 4, 5, 6] {
        let wide = [word(0x18, 3, source, 0, 9), 0];
        assert_ne!(why(&with(&wide)), "all is well", "source {source}");
    }
    assert_eq!(why(&with(&[word(0x18, 3, 0, 0, 9), 0])), "all is well");
    assert_ne!(
        why(&with(&[word(0x18, 3, 0, 0, 9), word(0, 1, 0, 0, 0)])),
        "all is well"
    );
}

#[test]
fn addresses_are_told_to_nobody() {
    let number = "it takes an address for a number";
    for (what, instructions, expected) in [
        ("stored", vec![word(0x7b, 6, 6, 16, 0)], number),
        ("multiplied", vec![word(0x27, 6, 0, 0, 3)], number),
        ("halved", vec![word(0xbc, 3, 6, 0, 0)], number),
        (
            "subtracted",
            vec![word(0xb7, 3, 0, 0, 0), word(0x1f, 3, 6, 0, 0)],
            number,
        ),
        ("compared", vec![word(0x25, 6, 0, 0, 9)], number),
        (
            "compared with another",
            vec![word(0x1d, 6, 6, 0, 0)],
            number,
        ),
        (
            "added to one",
            vec![word(0x0f, 6, 6, 0, 0)],
            "a sum of addresses",
        ),
        ("counted", vec![word(0xdb, 6, 6, 16, 0)], number),
        ("fetched", vec![word(0xdb, 6, 6, 16, 1)], number),
        (
            "the stack's",
            vec![word(0xbf, 3, 10, 0, 0)],
            "it takes the address of the stack",
        ),
        (
            "kept, and taken for a number",
            vec![
                word(0x7b, 10, 6, -16, 0),
                word(0x79, 3, 10, -16, 0),
                word(0x7b, 6, 3, 16, 0),
            ],
            number,
        ),
        ("kept in pieces", vec![word(0x7b, 10, 6, -12, 0)], number),
        (
            "one way only",
            vec![
                word(0xb7, 3, 0, 0, 0),
                word(0x61, 4, 6, 24, 0),
                word(0x15, 4, 0, 1, 9),
                word(0xbf, 3, 6, 0, 0),
                word(0x7b, 6, 3, 16, 0),
            ],
            number,
        ),
    ] {
        assert_eq!(why(&with(&instructions)), expected, "{what}");
    }
    let mut returned = with(&[]);
    let end = returned.instructions.len();
    returned.instructions[end - 2] = word(0xbf, 0, 6, 0, 0);
    assert_eq!(why(&returned), number, "returned");
}

#[test]
fn the_context_is_not_looked_at() {
    let mut object = with(&[]);
    object.instructions.insert(0, word(0xbf, 7, 1, 0, 0));
    object.maps[0].instruction = 2;
    assert_eq!(why(&object), "it looks at its context");
    object.instructions[0] = word(0x79, 7, 1, 0, 0);
    assert_eq!(why(&object), "it looks at its context");
}

#[test]
fn what_is_there_to_be_read_is_not_written() {
    let told = "it writes what the dispatcher tells";
    for (what, offset, expected) in [
        ("the channel", 44, told),
        ("the size of its output", 40, told),
        ("what nobody uses", 84, told),
        ("where it failed", 80, "all is well"),
        ("what is always 0", 72, told),
        ("the time", 0, told),
        ("before the frame", -8, told),
        ("its result", 16, "all is well"),
        ("an effect", 96, "all is well"),
    ] {
        assert_eq!(
            why(&with(&[word(0x62, 6, 0, offset, 1)])),
            expected,
            "{what}"
        );
    }
    // The event, in the place of the frame.
    let mut object = with(&[word(0x62, 6, 0, 16, 1)]);
    object.maps[0].map = Map::Event;
    assert_eq!(why(&object), "it writes what is there to be read");
}

#[test]
fn attributes_are_those_of_the_own_channel() {
    let mut object = object();
    let attributes = object.maps.iter().find(|used| used.map == Map::Attributes);
    let key = attributes.expect("it reads one").instruction as usize - 1;
    let stored = object.instructions[key];
    let register = (stored >> 12 & 15) as u8;
    // Between the key's load and its store something is added to it.
    object.instructions[key - 1] = word(0x07, register, 0, 0, 1);
    assert_ne!(why(&object), "all is well");
    object.instructions[key] = word(0x62, 10, 0, -4, 5);
    assert_eq!(why(&object), "attributes of another channel");
}

#[test]
fn every_changed_bit_ends_in_an_answer() {
    let object = object();
    let mut refused = 0;
    let bits = object.instructions.len() * 64;
    for bit in 0..bits {
        let mut changed = object.clone();
        changed.instructions[bit / 64] ^= 1 << (bit % 64);
        refused += usize::from(inspect(&changed, &ALL).is_err());
    }
    assert!(refused > bits / 4, "{refused} of {bits}");
}

#[test]
fn lookups_are_of_element_0() {
    for key in [word(0x62, 10, 0, -4, 1), word(0x62, 10, 0, -8, 0)] {
        let mut object = with(&[]);
        object.instructions[0] = key;
        assert_ne!(why(&object), "all is well");
    }
    let mut object = with(&[]);
    object.instructions[0] = word(0xb7, 3, 0, 0, 0);
    assert_eq!(why(&object), "a lookup without its key");
}
