//! Services whose events are raised by a program in E-code when the kernel reaches a tracepoint.
//!
//! Such a service consists of three programs (bpf/ecode/meeting.h): the one on the tracepoint, the
//! one in E-code that it calls, and the one that raises the event. The first and the third are
//! loaded first; then the E-code program is inserted; the tracepoint is attached last, so that no
//! event occurs before all are loaded. As for every added service, all of them belong to this
//! process.

use std::collections::HashMap;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use ::ecode::Compiled;
use ::ecode::limits;
use ::ecode::source::Source;
use ::ecode::tree;
use ecalls_abi::version::{DATA_MAX, FORMAT_MAX, NAME_MAX};
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, PrintLevel};
use zerocopy::{Immutable, IntoBytes};

use crate::access::Access;
use crate::access::handle::Service;
use crate::core::handler::Variables;
use crate::core::load;
use crate::core::service::describe;
use crate::ecode::{Maps, load_meeting};
use crate::error::{Error, Result};
use crate::kernel::{objects, sys};
use crate::provider::tracepoint::{TEXTS, Tracepoint};
use crate::provider::{self, Provider};

/// The section from which the objects read the service's constants.
const PLAN: &str = ".rodata.plan";
/// The programs other than the one in E-code.
pub(crate) const PROGRAMS: [&str; 2] = ["ecode_meet", "ecode_tell"];
/// The maps that each service has for itself.
pub(crate) const MAPS: [&str; 3] = ["meetings", "meeting_frames", "meeting_ecode"];
/// `struct meeting_plan` of bpf/ecode/meeting.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
struct Plan {
    service: u32,
    record_bytes: u32,
    input_bytes: u32,
    output_bytes: u32,
    fuel: u32,
    texts: u32,
    locked: u32,
    pad: u32,
    deadline_ns: u64,
    text: [[u32; 2]; TEXTS],
}

/// The program in E-code, and its variables.
#[derive(Debug)]
pub(crate) struct Ecode {
    _program: OwnedFd,
    _memory: Option<Variables>,
}

/// The two loaded objects, and the link of the second.
struct Parts {
    meet: Object,
    tell: Object,
    told: Link,
}

impl Provider {
    /// Adds the service that a text in E-code defines: `compiled` from `source`, for that
    /// tracepoint.
    ///
    /// # Errors
    /// [`Error::Denied`] without privileges; [`Error::Invalid`] for a name that is taken;
    /// [`Error::Ecode`] for a program that the kernel refuses.
    pub fn add_ecode(
        access: &Arc<dyn Access>,
        tracepoint: &Tracepoint,
        compiled: &Compiled,
        source: &Source,
    ) -> Result<Provider> {
        libbpf_rs::set_print(Some((PrintLevel::Warn, load::print_log)));
        let head = compiled.tree.service.as_ref();
        let head = head.ok_or(Error::Closed("the service's head"))?;
        let maps = provider::maps_of(&**access)?;
        let info = describe(&head.name, &head.format, &head.kind)?;
        let access = Arc::clone(access);
        let cpus = access.view()?.cpus;
        let service = Service::register(access, &head.name, &head.format, &head.kind)?;
        let plan = plan(tracepoint, compiled, head, service.index());
        let parts = load_parts(&maps, cpus, &plan)?;
        let ecode = place(&parts.meet, compiled, source)?;
        let met = attach(&parts.meet, tracepoint)?;
        let links = vec![met, parts.told];
        let objects = vec![parts.meet, parts.tell];
        Ok(Provider::of_ecode(links, objects, service, info, ecode))
    }
}

fn plan(tracepoint: &Tracepoint, compiled: &Compiled, head: &tree::Service, index: u32) -> Plan {
    let program = &compiled.program;
    // Bytes after the last one that the program reads need not be copied.
    let texts = tracepoint
        .texts
        .iter()
        .filter(|(_, to)| *to < program.input);
    let mut text = [[0; 2]; TEXTS];
    let mut used = 0;
    for (place, (from, to)) in text.iter_mut().zip(texts) {
        *place = [*from, *to];
        used += 1;
    }
    Plan {
        service: index,
        record_bytes: tracepoint.record_bytes,
        input_bytes: program.input,
        output_bytes: program.output,
        fuel: program.fuel.max(1),
        texts: used,
        locked: u32::from(!tracepoint.plain),
        pad: 0,
        deadline_ns: head.deadline_us * 1000,
        text,
    }
}

fn load_parts(maps: &HashMap<&'static str, OwnedFd>, cpus: u32, plan: &Plan) -> Result<Parts> {
    let refused = |source| Error::Load {
        object: "a service's program",
        source,
    };
    let mut open = open(objects::MEET)?;
    prepare(&mut open, maps, cpus, plan, None)?;
    let meet = open.load().map_err(refused)?;
    let mut open = self::open(objects::TELL)?;
    prepare(&mut open, maps, cpus, plan, Some(&meet))?;
    let tell = open.load().map_err(refused)?;
    let told = {
        let program = tell.progs_mut().next();
        let program = program.ok_or(Error::Closed("a program"))?;
        program.attach().map_err(refused)?
    };
    Ok(Parts { meet, tell, told })
}

fn open(bytes: &[u8]) -> Result<OpenObject> {
    ObjectBuilder::default()
        .open_memory(bytes)
        .map_err(|error| Error::from_bpf("opening a program", &error))
}

/// Replaces the object's maps by the core's and those of `former`, and sets its constants.
fn prepare(
    open: &mut OpenObject,
    maps: &HashMap<&'static str, OwnedFd>,
    cpus: u32,
    plan: &Plan,
    former: Option<&Object>,
) -> Result<()> {
    let sharing = |error| Error::from_bpf("sharing a map", &error);
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let own = former.and_then(|former| former.maps().find(|other| *other.name() == *name));
        if name == load::CONSTANTS {
            load::set_cpus(&mut map, cpus);
        } else if name == PLAN {
            let place = map.initial_value_mut();
            let place = place.and_then(|bytes| bytes.get_mut(..size_of::<Plan>()));
            place
                .ok_or(Error::Closed("a program's constants"))?
                .copy_from_slice(plan.as_bytes());
        } else if let Some(shared) = maps.get(name.as_str()) {
            map.reuse_fd(shared.as_fd()).map_err(sharing)?;
        } else if objects::MAPS.contains(&name.as_str()) {
            return Err(provider::missing(&name));
        } else if let Some(own) = own.filter(|_| MAPS.contains(&name.as_str())) {
            map.reuse_fd(own.as_fd()).map_err(sharing)?;
        }
    }
    Ok(())
}

fn map<'o>(object: &'o Object, name: &str) -> Result<libbpf_rs::MapImpl<'o>> {
    let found = object.maps().find(|map| map.name() == name);
    found.ok_or(Error::Closed("a map of a service"))
}

/// Loads the E-code program and inserts it where the first program calls it.
fn place(meet: &Object, compiled: &Compiled, source: &Source) -> Result<Ecode> {
    let bytes = &compiled.program.state.bytes;
    let memory = match bytes.is_empty() {
        true => None,
        false => Some(Variables::new(bytes)?),
    };
    let [meetings, frames, place] = MAPS;
    let (frames, meetings) = (map(meet, frames)?, map(meet, meetings)?);
    let maps = Maps {
        frame: frames.as_fd(),
        event: meetings.as_fd(),
        state: memory.as_ref().map(|memory| memory.map.as_fd()),
        attributes: None,
        sinks: None,
    };
    let program = load_meeting(&compiled.object, &maps)?
        .map_err(|refusal| Error::Ecode(refusal.render(&compiled.object, source)))?;
    let value = program.as_raw_fd().to_ne_bytes();
    map(meet, place)?
        .update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
        .map_err(|error| Error::from_bpf("putting a program into its place", &error))?;
    Ok(Ecode {
        _program: program,
        _memory: memory,
    })
}

fn attach(meet: &Object, tracepoint: &Tracepoint) -> Result<Link> {
    let event = sys::open_tracepoint(tracepoint.id)?;
    let mut programs = meet.progs_mut();
    let program = programs.next().ok_or(Error::Closed("a program"))?;
    let link = program
        .attach_perf_event(event.as_raw_fd())
        .map_err(|error| Error::from_bpf("attaching to the tracepoint", &error))?;
    // The link now owns it.
    let _ = event.into_raw_fd();
    Ok(link)
}

const _: () = assert!(
    limits::SERVICE_NAME_BYTES == NAME_MAX - 1
        && limits::SERVICE_FORMAT_BYTES == FORMAT_MAX - 1
        && limits::SERVICE_DATA_BYTES as usize == DATA_MAX,
    "the compiler's limits are those of services"
);
