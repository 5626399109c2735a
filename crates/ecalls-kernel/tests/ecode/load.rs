//! How programs get into the kernel: as handlers, with the lines of their text, and refused with
//! the place in it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use ecalls_kernel::Error;
use ecalls_kernel::ecode::{Maps, Refusal, Trial, load_handler};
use ecode::bpf::Object;
use ecode::environment::Environment;
use ecode::frame::at;
use ecode::limits;
use ecode::source::{Source, Span};
use libbpf_rs::query::{BtfInfoIter, ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{MapCore, MapHandle, MapType};
use libbpf_sys::{bpf_map_create_opts, size_t};

use crate::may_load;

const TEXT: &str = "static u32 large;\n\
                    if (bytes > 1000) {\n\
                    \x20   large++;\n\
                    \x20   signal(40, bytes);\n\
                    }\n\
                    return large * attr(\"rate\");\n";

fn compiled(text: &str) -> (Source, Object) {
    let source = Source::new("large.ec", text);
    let environment = Environment {
        input: Some("u64 bytes".into()),
        attributes: vec!["rate".into()],
        ..Environment::default()
    };
    let compiled = ecode::compile(&source, &environment);
    let compiled = compiled.unwrap_or_else(|refused| panic!("{refused}"));
    (source, compiled.object)
}

fn map(kind: MapType, bytes: u32) -> MapHandle {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as size_t,
        ..Default::default()
    };
    let name = Some("ecode_test");
    MapHandle::create(kind, name, 4, bytes, 1, &options).expect("a map")
}

/// What the kernel says of a program.
fn shown(program: BorrowedFd<'_>) -> ProgramInfo {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut bytes = size_of_val(&info) as u32;
    // SAFETY: `info` is memory of that size, which the kernel may write.
    let error = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut bytes)
    };
    assert_eq!(error, 0, "the program is there");
    let options = ProgInfoQueryOptions::default()
        .include_line_info(true)
        .include_func_info(true)
        .include_map_ids(true);
    let mut all = ProgInfoIter::with_query_opts(options);
    let found = all.find(|other| other.id == info.id);
    found.expect("the program is listed")
}

#[test]
fn a_handler_is_a_program_of_the_tracepoint_with_the_maps_that_it_is_given() {
    if !may_load() {
        return;
    }
    let (_, object) = compiled(TEXT);
    // As in the core: of each CPU its own frame and event.
    let frame = map(MapType::PercpuArray, at::BYTES);
    let event = map(MapType::PercpuArray, at::EVENT_DATA + limits::REGION_BYTES);
    let state = map(MapType::Array, object.state_bytes);
    let attributes = map(MapType::Array, limits::ATTRIBUTES * 8);
    let maps = Maps {
        frame: frame.as_fd(),
        event: event.as_fd(),
        state: Some(state.as_fd()),
        attributes: Some(attributes.as_fd()),
        sinks: None,
    };
    let handler = load_handler(&object, &maps).expect("the tracepoint");
    let handler = handler.unwrap_or_else(|refusal| panic!("{}", refusal.log));
    let info = shown(handler.as_fd());
    assert_eq!(info.name, "ecode");
    assert_eq!(info.ty, libbpf_rs::ProgramType::Tracing);
    let id = |map: &MapHandle| map.info().expect("the map is there").info.id;
    let mut expected = [&frame, &event, &state, &attributes].map(id).to_vec();
    let mut used = info.map_ids;
    expected.sort_unstable();
    used.sort_unstable();
    assert_eq!(used, expected);
}

#[test]
fn a_handler_whose_map_is_missing_is_not_offered_to_the_kernel() {
    if !may_load() {
        return;
    }
    let (_, object) = compiled(TEXT);
    let frame = map(MapType::PercpuArray, at::BYTES);
    let event = map(MapType::PercpuArray, at::EVENT_DATA + limits::REGION_BYTES);
    let maps = Maps {
        frame: frame.as_fd(),
        event: event.as_fd(),
        state: None,
        attributes: None,
        sinks: None,
    };
    let error = load_handler(&object, &maps).expect_err("a map is missing");
    assert!(matches!(error, Error::Closed(_)), "{error}");
}

/// The text at an offset of a BTF's strings.
fn string(btf: &[u8], offset: u32) -> &str {
    let word = |at: usize| u32::from_le_bytes(btf[at..at + 4].try_into().expect("4 bytes"));
    let (header, strings) = (word(4), word(16));
    let rest = &btf[(header + strings + offset) as usize..];
    let end = rest.iter().position(|byte| *byte == 0).expect("an end");
    std::str::from_utf8(&rest[..end]).expect("text")
}

#[test]
fn the_kernel_shows_from_which_line_each_instruction_came() {
    if !may_load() {
        return;
    }
    let (source, object) = compiled(TEXT);
    let trial = Trial::load_described(&object, &source).expect("memory");
    let trial = trial.unwrap_or_else(|refusal| panic!("{}", refusal.log));
    let info = shown(trial.program());
    let mut all = BtfInfoIter::default();
    let btf = all.find(|btf| btf.id == info.btf_id).expect("its BTF").btf;
    assert_eq!(info.func_info.len(), 1);
    let lines = &info.line_info;
    assert_eq!(lines.len(), object.spans.len());
    for ((instruction, span), line) in object.spans.iter().zip(lines) {
        let place = source.position(span.start);
        assert_eq!(string(&btf, line.file_name_off), "large.ec");
        assert_eq!((line.line_num, line.line_col), (place.line, place.column));
        let text = source.line(place.line).trim();
        assert_eq!(string(&btf, line.line_off), text, "{instruction}");
    }
    for number in [2, 3, 4, 6] {
        assert!(
            lines.iter().any(|line| line.line_num == number),
            "no instruction of line {number}: {lines:?}"
        );
    }
}

/// The object, with an instruction in it that no verifier accepts: the first one of this line.
fn broken(object: &Object, source: &Source, line: u32) -> (Object, u32) {
    const STACK_BEYOND: u64 = 0x79 | 10 << 12 | 8 << 16; // r0 = *(u64 *)(r10 + 8)
    let of_line = |at: &&(u32, Span)| source.position(at.1.start).line == line;
    let first = object.spans.iter().find(of_line).expect("the line").0;
    let mut object = object.clone();
    object.instructions[first as usize] = STACK_BEYOND;
    object.maps.retain(|used| used.instruction != first);
    (object, first)
}

fn refusal(object: &Object) -> Refusal {
    Trial::load(object).expect("memory").expect_err("refused")
}

#[test]
fn a_refusal_of_the_kernel_is_told_with_the_place_in_the_text() {
    if !may_load() {
        return;
    }
    let (source, object) = compiled(TEXT);
    let (object, at) = broken(&object, &source, 4);
    let refusal = refusal(&object);
    assert_eq!(refusal.instruction, Some(at), "{}", refusal.log);
    let told = refusal.render(&object, &source);
    let column = source.position(object.span(at).start).column;
    assert!(
        told.starts_with(&format!("large.ec:4:{column}: refused by the kernel: ")),
        "{told}"
    );
    assert!(told.contains("invalid read from stack"), "{told}");
    assert!(told.contains("\n    hint: "), "{told}");
    assert!(!refusal.log.is_empty());
}

#[test]
fn a_refusal_without_an_instruction_is_told_too() {
    if !may_load() {
        return;
    }
    let (source, mut object) = compiled("1");
    object.instructions.pop(); // no exit
    let told = refusal(&object).render(&object, &source);
    assert!(told.starts_with("large.ec"), "{told}");
    assert!(told.contains("refused by the kernel: "), "{told}");
}
