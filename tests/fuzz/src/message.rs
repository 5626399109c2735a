//! Messages (abi/message.h): what a client sends to the daemon, and what a daemon that lies sends
//! to a client.
//!
//! Always: a packet that is accepted is exactly what its message looks like when it is sent, so
//! nothing hides in it; and whatever its texts hold, they are shown without a panic.

use ecalls_abi::message::{Answer, MESSAGE_MAX, REFUSED_OS, Refused, Request};
use ecalls_abi::version::ACTIONS_MAX;
use ecalls_kernel::refusal;

pub(crate) fn run(packet: &[u8]) {
    match Request::parse(packet) {
        Ok((serial, request)) => {
            assert_eq!(request.packet(serial).as_bytes(), packet);
            assert!(packet.len() <= MESSAGE_MAX);
            assert!(request.descriptors() <= ACTIONS_MAX);
            // Requests and answers are never taken for each other.
            assert!(Answer::parse(packet).is_err(), "{}", request.name());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match Answer::parse(packet) {
        Ok((serial, answer)) => {
            assert_eq!(answer.packet(serial).as_bytes(), packet);
            assert!(packet.len() <= MESSAGE_MAX);
            if let Answer::Refused(refused) = answer {
                check_refusal(&refused);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A refusal becomes an error, and that error a refusal of the same kind. (Not the same texts: the
/// library keeps so many that are new, and no more.)
fn check_refusal(refused: &Refused) {
    let error = refusal::to_error(refused);
    assert!(!error.to_string().is_empty());
    let again = refusal::from_error(&error);
    assert!(refused.error == again.error || again.error == REFUSED_OS);
    for (text, place) in [
        (again.subject(), again.subject.len()),
        (again.given(), again.given.len()),
        (again.text(), again.text.len()),
    ] {
        assert!(text.len() < place);
    }
}
