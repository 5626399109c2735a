//! Beside programs that keep all CPUs busy, a start of the scheduler takes as many times longer as
//! threads share a CPU: the kernel's verifier works in the thread that loads the programs. So that
//! thread has the highest nice value while it does; it takes two seconds of CPU time at most.
//!
//! It has its own value again before the scheduler begins: what changes a nice value under a
//! scheduler of sched_ext does not change the weight for the kernel's own scheduler (Linux 7.3),
//! where the thread, and what it creates, would keep the weight of the highest one later.

use rustix::process::{getpriority_process, setpriority_process};

/// The kernel's highest: the weight of 87 threads of nice 0.
const HIGHEST: i32 = -20;

/// While this lives, the thread that made it has the highest nice value, if it may.
#[derive(Debug)]
pub struct Haste {
    before: Option<i32>,
}

impl Haste {
    /// Without the right to it (CAP_SYS_NICE) nothing changes.
    #[must_use]
    pub fn begin() -> Haste {
        // Of no process: of the calling thread.
        let nice = getpriority_process(None).ok();
        let before = nice.filter(|_| setpriority_process(None, HIGHEST).is_ok());
        Haste { before }
    }
}

impl Drop for Haste {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            let _ = setpriority_process(None, before);
        }
    }
}
