//! The mirror in Rust and the compiled kernel side say the same: structs, formats, maps, programs.
//!
//! What the kernel side really uses is in its object files: BTF describes every struct that a map
//! or a function's type names, libbpf lists maps and programs. Structs of local variables only
//! are not in there: so the headers are compiled once more, with a variable of every struct.
//! Reading all this needs no kernel and no privileges. The counterpart, for the host's compiler and
//! the constants, is tests/headers.rs of ecalls-abi.

#![forbid(unsafe_code)]

#[path = "../../ecalls-abi/tests/layout/mod.rs"]
#[expect(dead_code, reason = "the other test reads the constants")]
mod layout;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use ecalls_abi::service::HOST_IDS;
use ecalls_kernel::builtin::BUILTINS;
use ecalls_kernel::objects::{self, MAPS, PART_MAPS, PINNED, PROGRAMS, compiled};
use ecalls_kernel::{activation, answer, guard, ready, scheduler};
use libbpf_rs::btf::types::{Array, Int, IntEncoding, MemberAttr, Struct};
use libbpf_rs::btf::{Btf, BtfType, TypeId};
use libbpf_rs::{HasSize, ObjectBuilder};

use layout::STRUCTS;

/// Structs of the contract that are in no object's BTF, only in the headers': those that the kernel
/// side knows as words or as an inner map's value only, and the messages between applications and
/// the daemon.
const ONLY_IN_HEADERS: &[&str] = &[
    "ecalls_up",
    "ecalls_answer_input",
    "ecalls_answer_lease",
    "ecalls_lost",
    "ecalls_socket_event",
    "ecalls_timer_event",
    "ecalls_task_event",
    "ecalls_sched_event",
    "ecalls_net_event",
    "ecalls_disk_event",
    "ecalls_processor",
    "ecalls_activation",
    "ecalls_activations",
    "ecalls_ready_call",
    "ecalls_runtime_processor",
    "ecalls_runtime_activation",
    "ecalls_runtime_name",
    "ecalls_runtime_turn",
    "ecalls_runtime_turns",
    "ecalls_runtime",
    "ecalls_coop",
    "ecalls_sched_note",
    "ecalls_down",
    "ecalls_downcall",
    "ecalls_message",
    "ecalls_hello",
    "ecalls_number",
    "ecalls_name",
    "ecalls_open_channel",
    "ecalls_subscribe",
    "ecalls_replace_handler",
    "ecalls_upload",
    "ecalls_watch_socket",
    "ecalls_set_parameter",
    "ecalls_look_fate",
    "ecalls_done",
    "ecalls_welcome",
    "ecalls_refused",
    "ecalls_service_view",
    "ecalls_lane_source",
    "ecalls_lane_share",
    "ecalls_sink_told",
    "ecalls_relay_message",
    "ecalls_relay_channel",
    "ecalls_relay_counts",
    "ecalls_subscription_view",
    "ecalls_channel_view",
    "ecalls_queue_view",
    "ecalls_user_view",
    "ecalls_fate_view",
];

/// The kernel cuts a longer name.
const NAME_BYTES: usize = 15;

/// Maps that are in no table: the core's record, by which the others are found.
const HOST_MAP: &str = "ecalls_host";

/// The headers of abi/, compiled for the kernel with a variable of every struct.
fn headers(test: &str) -> Btf<'static> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut source = String::new();
    for entry in std::fs::read_dir(root.join("abi")).expect("abi/ is in the repository") {
        let name = entry.expect("abi/ is readable").file_name();
        let name = name.to_string_lossy();
        writeln!(source, "#include \"abi/{name}\"").expect("a string");
    }
    for mirrored in STRUCTS {
        writeln!(source, "struct {0} v_{0};", mirrored.name).expect("a string");
    }
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("layout-{test}.c"));
    let object = file.with_extension("o");
    std::fs::write(&file, source).expect("target/tmp is writable");
    let status = Command::new(env!("ECALLS_BPF_CLANG"))
        .args(["-target", "bpf", "-g", "-O2", "-c", "-I"])
        .args([&root, &file, &PathBuf::from("-o"), &object])
        .status()
        .expect("the compiler of the kernel side");
    assert!(status.success(), "the headers do not compile");
    Btf::from_path(&object).expect("an object file with BTF")
}

/// The headers' name among the objects.
const HEADERS: &str = "abi/*.h";

/// The types of every object file, and of the headers, which a file of the test's own includes.
fn types(test: &str) -> Vec<(&'static str, Btf<'static>)> {
    let objects = compiled()
        .chain([
            scheduler::compiled(),
            activation::compiled(),
            answer::compiled(),
            guard::compiled(),
            ready::compiled(),
        ])
        .map(|(name, bytes)| {
            let btf = Btf::from_raw(name, bytes).expect("an object file");
            (name, btf.expect("it has BTF"))
        });
    objects.chain([(HEADERS, headers(test))]).collect()
}

/// The struct of that tag: a map may have the same name.
fn find<'a>(btf: &'a Btf<'_>, tag: &str) -> Option<Struct<'a>> {
    btf.type_by_kind::<Struct<'_>>()
        .find(|found| found.name().is_some_and(|name| name == tag))
}

/// Name, offset in bytes and type of each field.
fn fields<'a>(found: &'a Struct<'a>) -> Vec<(String, usize, TypeId)> {
    let members = found.iter().map(|member| {
        let MemberAttr::Normal { offset } = member.attr else {
            panic!("the contract has no bit fields: {member:?}");
        };
        let name = member.name.unwrap_or_default().to_string_lossy();
        (name.into_owned(), offset as usize / 8, member.ty)
    });
    members.collect()
}

#[test]
fn structs_of_the_mirror_are_those_of_the_compiled_kernel_side() {
    let types = types("structs");
    let mut only_in_headers = Vec::new();
    for mirrored in STRUCTS {
        let mut places = 0;
        for (object, btf) in &types {
            let Some(found) = find(btf, mirrored.name) else {
                continue;
            };
            places += 1;
            assert_same(object, mirrored, &found);
        }
        assert!(places > 0, "{} is nowhere", mirrored.name);
        if places == 1 {
            only_in_headers.push(mirrored.name);
        }
    }
    assert_eq!(only_in_headers, ONLY_IN_HEADERS);
}

fn assert_same(object: &str, mirrored: &layout::Struct, found: &Struct<'_>) {
    let name = mirrored.name;
    assert_eq!(found.size(), mirrored.size, "size of {name} in {object}");
    let fields = fields(found);
    let there: Vec<(&str, usize)> = fields.iter().map(|(n, at, _)| (n.as_str(), *at)).collect();
    let ours: Vec<(&str, usize)> = mirrored.fields.iter().map(|f| (f.name, f.offset)).collect();
    assert_eq!(there, ours, "fields of {name} in {object}");
}

/// A field's type and name as formats write them, and its size in bytes.
fn written(btf: &Btf<'_>, name: &str, id: TypeId) -> (String, usize) {
    let plain: BtfType<'_> = btf.type_by_id(id).expect("a type");
    let plain = plain.skip_mods_and_typedefs();
    if let Ok(array) = Array::try_from(plain) {
        let (element, size) = scalar(array.contained_type());
        let count = array.capacity();
        return (format!("{element} {name}[{count}]"), size * count);
    }
    let (text, size) = scalar(plain);
    (format!("{text} {name}"), size)
}

fn scalar(found: BtfType<'_>) -> (String, usize) {
    let found = found.skip_mods_and_typedefs();
    let int = Int::try_from(found).expect("a format has integers and arrays of them");
    let text = match int.encoding {
        IntEncoding::Signed if found.name().is_some_and(|name| name == "char") => "char".into(),
        IntEncoding::Char => "char".into(),
        IntEncoding::Signed => format!("s{}", int.bits),
        _ => format!("u{}", int.bits),
    };
    (text, usize::from(int.bits) / 8)
}

/// The format that describes the struct: as a format has it, fields lie close behind each other.
fn format_of(btf: &Btf<'_>, found: &Struct<'_>) -> String {
    let mut format = String::new();
    let mut end = 0;
    for (name, offset, id) in fields(found) {
        let (text, size) = written(btf, &name, id);
        assert_eq!(offset, end, "a gap before {name} of {:?}", found.name());
        end = offset + size;
        let separator = if offset == 0 { "" } else { "; " };
        write!(format, "{separator}{text}").expect("a string");
    }
    assert_eq!(end, found.size(), "a gap at the end of {:?}", found.name());
    format
}

#[test]
fn formats_of_built_in_services_are_their_structs() {
    let types = types("formats");
    let mut compared = BTreeSet::new();
    for builtin in BUILTINS {
        for (object, btf) in &types {
            if let Some(found) = find(btf, &format!("ecalls_{}_event", builtin.name)) {
                let format = format_of(btf, &found);
                assert_eq!(format, builtin.format, "{} in {object}", builtin.name);
                compared.insert(builtin.name);
            }
        }
    }
    let without_struct: Vec<_> = BUILTINS
        .iter()
        .map(|builtin| builtin.name)
        .filter(|name| !compared.contains(name))
        .collect();
    assert_eq!(without_struct, ["core"], "its events are one word");
}

#[test]
fn maps_of_the_objects_are_those_of_the_loader() {
    let mut found = BTreeSet::new();
    for (object, bytes) in compiled() {
        let open = ObjectBuilder::default().open_memory(bytes).expect(object);
        let names = open
            .maps()
            .map(|map| map.name().to_string_lossy().into_owned());
        // Those with a point hold an object's own variables.
        found.extend(names.filter(|name| !name.contains('.')));
    }
    let known: BTreeSet<String> = MAPS
        .iter()
        .chain([&HOST_MAP])
        .map(|&name| name.into())
        .collect();
    assert_eq!(found, known);
    assert_eq!(known.len(), MAPS.len() + 1, "none is listed twice");
    assert!(
        MAPS.len() <= HOST_IDS,
        "the core's record has a place for each"
    );
}

#[test]
fn the_kernel_cuts_no_name() {
    let meetings = [("meet", objects::MEET), ("tell", objects::TELL)];
    let alone = [
        scheduler::compiled(),
        activation::compiled(),
        answer::compiled(),
        guard::compiled(),
        ready::compiled(),
    ];
    for (object, bytes) in compiled().chain(meetings).chain(alone) {
        let open = ObjectBuilder::default().open_memory(bytes).expect(object);
        let maps = open.maps().map(|map| map.name().to_owned());
        let programs = open.progs().map(|program| program.name().to_owned());
        for name in maps.chain(programs) {
            let name = name.to_string_lossy();
            let is_own = name.contains('.'); // an object's own variables
            assert!(is_own || name.len() <= NAME_BYTES, "{object}: {name}");
        }
    }
}

/// A map that one part alone has comes with it; every other one comes with the core.
#[test]
fn maps_of_a_part_are_in_no_other_object() {
    let mut objects_with: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (object, bytes) in compiled() {
        let open = ObjectBuilder::default().open_memory(bytes).expect(object);
        for map in open.maps() {
            let name = map.name().to_string_lossy().into_owned();
            if !name.contains('.') {
                objects_with.entry(name).or_default().push(object);
            }
        }
    }
    let single = objects_with
        .iter()
        .filter(|(_, objects)| objects.len() == 1 && objects[0] != "deliver");
    let found: BTreeSet<(&str, &str)> = single
        .map(|(map, objects)| (map.as_str(), objects[0]))
        .collect();
    assert_eq!(found, PART_MAPS.iter().copied().collect());
}

#[test]
fn programs_of_the_objects_are_those_of_the_loader() {
    let mut found = BTreeSet::new();
    for (object, bytes) in compiled() {
        let open = ObjectBuilder::default().open_memory(bytes).expect(object);
        let names = open
            .progs()
            .map(|program| program.name().to_string_lossy().into_owned());
        found.extend(names.map(|name| (object, name)));
    }
    for (other, pinned) in PINNED {
        let at = found.iter().find(|(_, name)| name == pinned);
        let (object, name) = at.cloned().expect("a program in the place of another");
        assert!(found.remove(&(object, name)) && found.contains(&(object, (*other).to_owned())));
    }
    let known: BTreeSet<(&str, String)> = PROGRAMS
        .iter()
        .map(|program| (program.object, program.name.to_owned()))
        .collect();
    assert_eq!(found, known);
    let names: BTreeSet<&str> = PROGRAMS.iter().map(|program| program.name).collect();
    assert_eq!(names.len(), PROGRAMS.len(), "no name is used twice");
    assert!(
        PROGRAMS.len() <= HOST_IDS,
        "the core's record has a place for each"
    );
}

#[test]
fn every_source_of_the_kernel_side_is_an_object_of_the_loader() {
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    let mut sources = BTreeSet::new();
    for folder in ["event", "net", "service"] {
        for entry in std::fs::read_dir(bpf.join(folder)).expect("it is in the repository") {
            let name = entry.expect("it is readable").file_name();
            let name = name.to_string_lossy();
            sources.extend(name.strip_suffix(".bpf.c").map(str::to_owned));
        }
    }
    let known: BTreeSet<String> = compiled().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(sources, known);
}
