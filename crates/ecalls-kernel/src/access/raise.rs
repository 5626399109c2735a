//! Raises events of application services (ECalls-05 §3, raise_event), by the generic call.

use ecalls_abi::downcall::{Generic, Op};
use zerocopy::IntoBytes;

use crate::access::Access;
use crate::error::{Error, Result};

/// What is raised.
#[derive(Clone, Copy, Debug)]
pub struct Raise<'a> {
    /// Process to tell, or `TARGET_*` of `ecalls_abi::event`.
    pub target: i32,
    /// What happened, 0..31.
    pub kind: u32,
    /// Which typed slot it belongs to.
    pub kind_type: u32,
    /// Which priority slot it belongs to; 0 is the most urgent.
    pub priority: u32,
    /// `EVENT_CPU` or 0.
    pub flags: u32,
    /// Relative, us; 0: none.
    pub deadline_us: u64,
    /// Relative, us; 0: at once.
    pub release_us: u64,
    /// At most `DATA_MAX` bytes.
    pub data: &'a [u8],
}

/// Raises an event of the named application service (the generic call, ECalls-01 §2.3.1). Returns
/// how many subscriptions it is for.
pub fn raise_by_name(access: &Access, name: &str, raise: &Raise<'_>) -> Result<i64> {
    let mut call = Generic::new(name, Op::Raise).map_err(|_| Error::Invalid {
        what: "the service's name",
        given: format!("{name:?}"),
        expected: "a name of 1 to 31 bytes",
    })?;
    if raise.data.len() > ecalls_abi::version::DATA_MAX {
        return Err(Error::Invalid {
            what: "the event's data",
            given: format!("{} bytes", raise.data.len()),
            expected: "at most 168 bytes",
        });
    }
    call.target = raise.target;
    call.kind = raise.kind;
    call.r#type = raise.kind_type;
    call.priority = raise.priority;
    call.flags = raise.flags;
    call.deadline_us = raise.deadline_us;
    call.release_us = raise.release_us;
    call.size = u32::try_from(raise.data.len()).expect("checked");
    call.data.as_mut_bytes()[..raise.data.len()].copy_from_slice(raise.data);
    match access.generic(&mut call)? {
        code if code == -i64::from(libc::ENOENT) && !access.has_service(name)? => {
            Err(Error::Unknown {
                what: "application service",
                name: name.to_owned(),
                hint: "`ecalls services` lists them".to_owned(),
            })
        }
        code if code == -i64::from(libc::EPERM) => Err(Error::Invalid {
            what: "the service",
            given: format!("{name:?}"),
            expected: "an application service of this process (root: of any); the kernel raises \
                       for the built-in ones itself",
        }),
        // Nobody subscribed: the event is counted as dropped for that reason.
        code if code == -i64::from(libc::ENOENT) => Ok(0),
        code if code == -i64::from(libc::EDQUOT) => Err(Error::Quota {
            which: "raised or waiting events",
            limit: 0,
        }),
        code if code < 0 => Err(Error::from_errno("raising an event", code)),
        offered => Ok(offered),
    }
}
