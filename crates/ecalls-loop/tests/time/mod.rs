//! Virtual time: a clock that stands still while events run, unless they say that they take time,
//! and a poll that moves it to the next release instead of sleeping.

use std::cell::Cell;
use std::rc::Rc;

use ecalls_loop::clock::Clock;
use ecalls_loop::descriptors::Descriptors;
use ecalls_loop::poll::{Answer, NONE, Poll, Timing, Wants};
use ecalls_loop::{Loop, Result};

#[derive(Clone, Debug, Default)]
pub(crate) struct VirtualTime(Rc<Cell<u64>>);

impl VirtualTime {
    /// A loop in this time.
    pub(crate) fn events(&self) -> Loop {
        Loop::with_poll(self.clone(), self.clone()).unwrap()
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.get()
    }

    pub(crate) fn pass(&self, ns: u64) {
        self.0.set(self.0.get() + ns);
    }
}

impl Clock for VirtualTime {
    fn now_ns(&self) -> u64 {
        self.now()
    }
}

impl Poll for VirtualTime {
    fn poll(&mut self, wants: &Wants, _: &mut Descriptors) -> Result<Answer> {
        if !wants.has_work() {
            assert_ne!(wants.release_ns, NONE, "nothing would end this sleep");
            self.0.set(wants.release_ns);
        }
        Ok(Answer::ALONE)
    }

    fn rest(&mut self, _: &Wants, _: &mut Descriptors) -> Result<()> {
        Ok(())
    }

    fn timing(&self) -> Timing {
        Timing::Plain
    }
}
