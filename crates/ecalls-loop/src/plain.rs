//! The poll without a cooperative scheduler: as precise as the kernel's timers.
//!
//! It sleeps on an absolute timer without slack. It never yields: under the kernel's own schedulers
//! that would give up the rest of the time slice without any benefit.

use crate::descriptors::Descriptors;
use crate::error::Result;
use crate::poll::{Answer, Poll, Timing, Wants};

/// The plain poll.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Poll for Plain {
    fn poll(&mut self, wants: &Wants, descriptors: &mut Descriptors) -> Result<Answer> {
        if !wants.has_work() && wants.may_sleep {
            descriptors.sleep_until(wants.release_ns)?;
        } else if descriptors.is_watching() || !wants.may_sleep {
            descriptors.look()?;
        }
        Ok(Answer::ALONE)
    }

    fn rest(&mut self, wants: &Wants, descriptors: &mut Descriptors) -> Result<()> {
        descriptors.set_timer(wants.release_ns)
    }

    fn timing(&self) -> Timing {
        Timing::Plain
    }
}
