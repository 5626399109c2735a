//! Services that are added while the core runs, from a BPF object file of a privileged provider
//! (its author programs against bpf/ecalls/service.bpf.h).
//!
//! A service is added in these steps: inspect the file, register the service that it describes,
//! load its programs with the core's maps in place of its maps of the same names, and attach them.
//! All of these belong to this process: when it ends, for whatever reason, its programs are
//! detached and the service ends.
//!
//! The file's programs write into the core's own tables, by the layouts with which they were
//! compiled. So the layouts of all shared structs are compared first, field by field.
//!
//! The core is accessed like by any other program: maps by number, the service by its registration.
//! So this works for a program that hosts the core and for a privileged client of the daemon.

pub(crate) mod meeting;
pub mod tracepoint;

use std::collections::HashMap;
use std::fmt::Write;
use std::mem::size_of;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ecalls_abi::service::ServiceInfo;
use ecalls_abi::version::ABI_VERSION;
use ecalls_abi::{text, version};
use libbpf_rs::btf::types::{Array, MemberAttr, Struct, Union};
use libbpf_rs::btf::{Btf, BtfType};
use libbpf_rs::{HasSize, Link, Object, ObjectBuilder, OpenObject, PrintLevel};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::access::Access;
use crate::access::handle::Service;
use crate::core::load;
use crate::error::{Error, Result};
use crate::kernel::objects::{MAPS, compiled};
use crate::kernel::sys;
use crate::provider::meeting::Ecode;

/// The section in which the file describes its service: `struct ecalls_provided` of
/// bpf/ecalls/service.bpf.h.
const DESCRIPTION: &str = ".rodata.service";

/// Kinds of programs that may raise events: they run with preemption off, and may take locks.
const ALLOWED: [&str; 3] = ["tp_btf/", "fentry/", "fexit/"];

/// The core's structs that a raise reads or writes, as the headers name them.
const SHARED: &[&str] = &[
    "ecalls_event",
    "ecalls_service",
    "ecalls_service_count",
    "ecalls_subscription",
    "ecalls_subscription_count",
    "ecalls_channel",
    "ecalls_audience",
    "ecalls_user",
    "current",
    "queue_cell",
    "queue_timer",
    "attributes",
    "handler_state",
];

/// Maximum nesting of structs.
const DEPTH_MAX: u32 = 16;

#[repr(C)]
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Provided {
    version: u32,
    index: u32,
    info: ServiceInfo,
}

/// A service that this process has added. Dropping it ends the service.
#[derive(Debug)]
pub struct Provider {
    /// The first field, so that no event is raised any more when the service ends.
    _links: Vec<Link>,
    objects: Vec<Object>,
    service: Service,
    info: ServiceInfo,
    /// A program in E-code, with its variables.
    ecode: Option<Ecode>,
}

impl Provider {
    /// Adds the service that an object file describes.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a file that is not an object file, describes no service, was compiled
    /// for another version, has programs of a kind that may not raise or that the kernel refuses,
    /// and for a name that is taken; [`Error::Denied`] without privileges.
    pub fn add(access: &Arc<dyn Access>, bytes: &[u8]) -> Result<Provider> {
        libbpf_rs::set_print(Some((PrintLevel::Warn, load::print_log)));
        let open = ObjectBuilder::default()
            .open_memory(bytes)
            .map_err(|error| not_a_service(&error.to_string()))?;
        let provided = description(&open)?;
        check_programs(&open)?;
        check_layouts(bytes)?;
        let maps = maps_of(&**access)?;
        let info = provided.info;
        let kinds = text::read(&info.kinds);
        let service = Service::register(Arc::clone(access), info.name(), info.format(), kinds)?;
        let open = prepare(open, &maps, access.view()?.cpus, service.index())?;
        let object = open.load().map_err(|error| refused(&error))?;
        let mut links = Vec::new();
        for program in object.progs_mut() {
            links.push(program.attach().map_err(|error| refused(&error))?);
        }
        Ok(Provider {
            _links: links,
            objects: vec![object],
            service,
            info,
            ecode: None,
        })
    }

    /// A service in E-code, whose programs run already.
    pub(crate) fn of_ecode(
        links: Vec<Link>,
        objects: Vec<Object>,
        service: Service,
        info: ServiceInfo,
        ecode: Ecode,
    ) -> Provider {
        Provider {
            _links: links,
            objects,
            service,
            info,
            ecode: Some(ecode),
        }
    }

    /// How often the kernel did not run its program in E-code, because another one of its kind was
    /// active on that CPU: these occurrences were not examined.
    ///
    /// # Errors
    /// [`Error::Os`].
    pub fn skipped(&self) -> Result<u64> {
        let Some(meet) = self.objects.first().filter(|_| self.ecode.is_some()) else {
            return Ok(0);
        };
        let programs = meet.progs();
        programs
            .map(|program| Ok(sys::program_info(program.as_fd())?.recursion_misses))
            .sum()
    }

    pub fn index(&self) -> u32 {
        self.service.index()
    }

    pub fn name(&self) -> &str {
        self.info.name()
    }
}

pub(crate) fn invalid(what: &'static str, given: String, expected: &'static str) -> Error {
    Error::Invalid {
        what,
        given,
        expected,
    }
}

fn not_a_service(given: &str) -> Error {
    invalid(
        "the file",
        format!("not a service ({given})"),
        "compile a file that includes ecalls/service.bpf.h and says ECALLS_SERVICE(...), by clang \
         -target bpf -g",
    )
}

fn refused(error: &libbpf_rs::Error) -> Error {
    invalid(
        "one of its programs",
        format!("refused by the kernel: {error:#}"),
        "a program that its verifier accepts, on a tracepoint or function that there is \
         (ECALLS_LIBBPF_LOG=1 shows all that it says)",
    )
}

/// The file's description of its service, checked.
fn description(open: &OpenObject) -> Result<Provided> {
    let bytes = open
        .maps()
        .find(|map| map.name() == DESCRIPTION)
        .and_then(|map| map.initial_value().map(<[u8]>::to_vec))
        .ok_or_else(|| not_a_service("it describes none"))?;
    let first = bytes.first_chunk().map(|word| u32::from_ne_bytes(*word));
    match first {
        Some(ABI_VERSION) => {}
        other => {
            let given = other.map_or("missing".to_owned(), |version| version.to_string());
            return Err(other_headers(format!(
                "{given}, and this program's is {ABI_VERSION}"
            )));
        }
    }
    match Provided::read_from_prefix(&bytes) {
        Ok((provided, _)) => Ok(provided),
        Err(_) => Err(not_a_service("its description is too short")),
    }
}

fn other_headers(given: String) -> Error {
    invalid(
        "the file's version of the contract",
        given,
        "compile it again with the headers of the version that runs",
    )
}

fn check_programs(open: &OpenObject) -> Result<()> {
    let mut programs = 0;
    for program in open.progs() {
        let section = program.section().to_string_lossy();
        if !ALLOWED.iter().any(|allowed| section.starts_with(allowed)) {
            return Err(invalid(
                "one of its programs",
                format!("{} in {section:?}", program.name().display()),
                "one that may raise events: SEC(\"tp_btf/...\"), SEC(\"fentry/...\") or \
                 SEC(\"fexit/...\")",
            ));
        }
        programs += 1;
    }
    if programs == 0 {
        return Err(not_a_service("it has no programs"));
    }
    Ok(())
}

/// Compares the structs that the file shares with the core's own object files.
fn check_layouts(bytes: &[u8]) -> Result<()> {
    let unreadable = || not_a_service("no type information");
    let theirs = Btf::from_raw("service", bytes).map_err(|_| unreadable())?;
    let theirs = theirs.ok_or_else(unreadable)?;
    let ours: Vec<_> = compiled()
        .filter_map(|(name, bytes)| Btf::from_raw(name, bytes).ok().flatten())
        .collect();
    for tag in SHARED {
        let Some(given) = layout_of(&theirs, tag) else {
            continue;
        };
        let core = ours.iter().find_map(|btf| layout_of(btf, tag));
        if core.is_some_and(|core| core != given) {
            return Err(other_headers(format!("another, as its struct {tag} shows")));
        }
    }
    Ok(())
}

/// A struct's layout as text; `None` if there is no such struct.
fn layout_of(btf: &Btf<'_>, tag: &str) -> Option<String> {
    let found = btf
        .type_by_kind::<Struct<'_>>()
        .find(|found| found.name().is_some_and(|name| name == tag))?;
    let mut text = String::new();
    write_struct(btf, &found, &mut text, DEPTH_MAX);
    Some(text)
}

fn write_struct(btf: &Btf<'_>, found: &Struct<'_>, text: &mut String, depth: u32) {
    let _ = write!(text, "{{{}:", found.size());
    for member in found.iter() {
        if let MemberAttr::Normal { offset } = member.attr {
            let name = member.name.unwrap_or_default().to_string_lossy();
            let _ = write!(text, "{name}@{offset}");
            if let Some(inner) = btf.type_by_id::<BtfType<'_>>(member.ty) {
                write_type(btf, inner, text, depth);
            }
        }
    }
    text.push('}');
}

fn write_type(btf: &Btf<'_>, found: BtfType<'_>, text: &mut String, depth: u32) {
    let found = found.skip_mods_and_typedefs();
    if depth == 0 {
        return;
    }
    if let Ok(inner) = Struct::try_from(found) {
        write_struct(btf, &inner, text, depth - 1);
    } else if let Ok(array) = Array::try_from(found) {
        let _ = write!(text, "[{}]", array.capacity());
        write_type(btf, array.contained_type(), text, depth - 1);
    } else if let Ok(union) = Union::try_from(found) {
        let _ = write!(text, "|{}", union.size());
    } else {
        // For integers and pointers, the offsets are sufficient.
        text.push(';');
    }
}

/// The core's maps by name.
pub(crate) fn maps_of(access: &dyn Access) -> Result<HashMap<&'static str, OwnedFd>> {
    let mut maps = HashMap::new();
    for (number, name) in (0..).zip(MAPS) {
        if let Some(fd) = access.take_map(number)? {
            maps.insert(*name, fd);
        }
    }
    Ok(maps)
}

/// Replaces the file's maps by the core's, and sets its constants.
fn prepare(
    mut open: OpenObject,
    maps: &HashMap<&'static str, OwnedFd>,
    cpus: u32,
    index: u32,
) -> Result<OpenObject> {
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == load::CONSTANTS {
            load::set_cpus(&mut map, cpus);
        } else if name == DESCRIPTION {
            let place = map
                .initial_value_mut()
                .and_then(|bytes| bytes.get_mut(4..8))
                .ok_or_else(|| not_a_service("its description cannot be written"))?;
            place.copy_from_slice(&index.to_ne_bytes());
        } else if let Some(shared) = maps.get(name.as_str()) {
            map.reuse_fd(shared.as_fd())
                .map_err(|error| Error::from_bpf("sharing a map of the core", &error))?;
        } else if MAPS.contains(&name.as_str()) {
            return Err(missing(&name));
        }
    }
    Ok(open)
}

/// The error for a file with a map that an optional part of the core would have provided.
pub(crate) fn missing(name: &str) -> Error {
    invalid(
        "one of its maps",
        format!("{name}, which this core does not have"),
        "another name, or a kernel that has what the map is for (`ecalls doctor`)",
    )
}

const _: () = assert!(
    size_of::<Provided>() == 8 + version::NAME_MAX + 2 * version::FORMAT_MAX,
    "struct ecalls_provided"
);
