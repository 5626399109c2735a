//! The policy of a guarded port: a program in E-code that decides instead of the guard's rule
//! (bpf/guard/policy.h).

use ::ecode::environment::Environment;

use super::Guard;
use crate::core::handler::{Apart, Handler};
use crate::ecode::environment::of_result;
use crate::ecode::load_policy;
use crate::error::Result;

const PLACE: &str = "guard_policy";
const FRAMES: &str = "guard_frames";
const EVENTS: &str = "guard_facts";

/// What a policy sees, `struct facts` of the kernel side.
const FACTS: &str = "u64 age_ns; u64 wait_ns; u64 pace_ns; u64 target_ns; u64 queued; \
                     u64 numconnects; u64 response_ns; u64 open; u64 admitted; u64 refused; \
                     u16 refuses; u16 family; u16 remote_port; u16 pad; u32 remote_ip4; \
                     u8 remote_ip[16]";

/// The names that a policy may use.
pub fn environment() -> Environment {
    let reason = "a policy only decides: a result of 0 turns the connection away";
    of_result(FACTS, reason)
}

impl Guard {
    /// Lets it decide.
    pub(super) fn set_policy(&self, policy: &Handler) -> Result<()> {
        let apart = Apart {
            frames: &self.handle(FRAMES)?,
            events: &self.handle(EVENTS)?,
            place: &self.handle(PLACE)?,
        };
        apart.put(policy, load_policy)
    }
}
