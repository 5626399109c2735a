//! A service's description as another application sent it: what the daemon checks before it takes
//! it, and what everybody reads of it afterwards.
//!
//! Always: a description that is accepted has a name that can be written into a line of a table or
//! a log, and is the same after it was read and described again.

use ecalls::Format;
use ecalls_abi::service::ServiceInfo;
use ecalls_abi::text;
use ecalls_abi::zerocopy::FromZeros;
use ecalls_kernel::service;

pub(crate) fn run(bytes: &[u8]) {
    let mut info = ServiceInfo::new_zeroed();
    // A byte says how long the name is and another how long the format, so that short inputs
    // reach all three.
    let [name_len, format_len, rest @ ..] = bytes else {
        return;
    };
    let (name, rest) = rest.split_at(rest.len().min(usize::from(*name_len)));
    let (format, kinds) = rest.split_at(rest.len().min(usize::from(*format_len)));
    fill(&mut info.name, name);
    fill(&mut info.format, format);
    fill(&mut info.kinds, kinds);
    assert!(info.kinds().count() <= info.kinds.len());
    let _ = Format::parse(info.format());
    let kinds = text::read(&info.kinds);
    let Ok(described) = service::describe(info.name(), info.format(), kinds) else {
        return;
    };
    let name = described.name();
    assert!(!name.is_empty() && name.len() < described.name.len());
    assert!(!name.contains(|c: char| c.is_whitespace() || c.is_control()));
    assert_eq!((name, described.format()), (info.name(), info.format()));
    let again = service::describe(name, described.format(), text::read(&described.kinds));
    assert_eq!(again.ok(), Some(described));
}

fn fill(place: &mut [u8], bytes: &[u8]) {
    let len = place.len().min(bytes.len());
    place[..len].copy_from_slice(&bytes[..len]);
}
