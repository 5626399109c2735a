//! The kernel side of scheduler activations without sched_ext (bpf/threads/activation.bpf.c).
//!
//! The process that uses activations loads it, and holds it; it is an object of its own and needs
//! no core. When the process ends, the kernel frees it.

use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;

use libbpf_rs::{Link, MapCore, Object, ObjectBuilder, PrintLevel};

use crate::core::load;
use crate::error::{Error, Result};
use crate::kernel::segment::Segment;
use crate::kernel::{sys, verdict};

const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/activation.bpf.o"));
const NAME: &str = "activation";
const PAGE: &str = "activations";
const SWITCH: &str = "thread_blocks";
const JOIN: &str = "activation_join";

/// Its object file, for the test that compares the contract with what was compiled.
#[doc(hidden)]
pub fn compiled() -> (&'static str, &'static [u8]) {
    (NAME, BYTES)
}

/// The kernel side for one process's activations.
#[derive(Debug)]
pub struct Activations {
    // The first field: blocks are told until it ends, and the page must outlive that.
    _link: Link,
    page: Segment,
    object: Object,
}

impl Activations {
    /// Loads it, and attaches it to the context switch.
    ///
    /// # Errors
    /// [`Error::Denied`] without CAP_BPF and CAP_PERFMON; [`Error::Refused`] if the kernel's
    /// verifier does not accept it.
    pub fn open() -> Result<Activations> {
        if !sys::may_host() {
            return Err(Error::Denied {
                action: "seeing threads block",
                privilege: "CAP_BPF and CAP_PERFMON, or root",
            });
        }
        let failed = |source| Error::Load {
            object: NAME,
            source,
        };
        libbpf_rs::set_print(Some((PrintLevel::Warn, load::print_log)));
        let open = ObjectBuilder::default()
            .name(NAME)
            .and_then(|builder| builder.open_memory(BYTES))
            .map_err(failed)?;
        let loaded = open.load();
        let object = match (loaded, verdict::take()) {
            (Ok(object), _) => object,
            (Err(_), Some(why)) => return Err(Error::Refused { what: NAME, why }),
            (Err(source), None) => return Err(failed(source)),
        };
        let page = object.maps().find(|map| map.name() == PAGE);
        let page = page.ok_or(Error::Closed("the activations' page"))?;
        let bytes = usize::try_from(page.value_size()).unwrap_or(0);
        let page = Segment::map(page.as_fd(), bytes)?;
        let switch = object.progs_mut().find(|program| program.name() == SWITCH);
        let switch = switch.ok_or(Error::Closed("the activations' program"))?;
        let link = switch.attach().map_err(failed)?;
        Ok(Activations {
            _link: link,
            page,
            object,
        })
    }

    /// The page: `struct ecalls_activations`.
    pub fn page(&self) -> &[AtomicU64] {
        self.page.words()
    }

    /// The calling thread is activation `number` (from 1) from now on, until it ends.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn join(&self, number: u32) -> Result<()> {
        let program = self.object.progs().find(|program| program.name() == JOIN);
        let program = program.ok_or(Error::Closed("the activations' program"))?;
        let result = sys::run(program.as_fd(), &mut number.to_ne_bytes())?;
        if result < 0 {
            return Err(Error::from_errno(
                "becoming an activation",
                i64::from(result),
            ));
        }
        Ok(())
    }
}
