//! The account of a control group (`bpf/lib/sched/quota.h`), callable.
#![allow(
    unsafe_code,
    reason = "calls C functions on memory that they share with no one"
)]

/// `QUOTA_TURN_NS`: the longest turn of a thread under a quota.
pub const TURN_NS: u64 = 5_000_000;
/// `QUOTA_TURN_LEAST_NS`: the shortest one.
pub const TURN_LEAST_NS: u64 = 200_000;
/// `QUOTA_NONE`.
pub const NONE: u64 = u64::MAX;
/// `QUOTA_DEBT`: a group owes so many quotas at most.
pub const DEBT: u64 = 8;

/// `struct quota`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Quota {
    /// CPU time per period; 0: no limit.
    pub quota_ns: u64,
    /// The period.
    pub period_ns: u64,
    /// What it may save up beyond one quota.
    pub burst_ns: u64,
    /// End of the current period.
    pub end_ns: u64,
    /// Less than 0: a debt.
    pub left_ns: i64,
}

unsafe extern "C" {
    static policy_quota_size: u64;
    safe fn policy_quota_set(quota: &mut Quota, period: u64, us: u64, burst: u64, now: u64);
    safe fn policy_quota_left(quota: &mut Quota, now: u64) -> i64;
    safe fn policy_quota_charge(quota: &mut Quota, ns: u64);
    safe fn policy_quota_turn(left_ns: i64) -> u64;
}

impl Quota {
    /// An account, as the kernel gives it: in us.
    pub fn new(period_us: u64, quota_us: u64, burst_us: u64, now: u64) -> Self {
        // SAFETY: a constant of shim.c.
        assert_eq!(unsafe { policy_quota_size }, size_of::<Quota>() as u64);
        let mut quota = Self::default();
        policy_quota_set(&mut quota, period_us, quota_us, burst_us, now);
        quota
    }

    /// What is left now.
    pub fn left(&mut self, now: u64) -> i64 {
        policy_quota_left(self, now)
    }

    /// A thread of the group has had the CPU.
    pub fn charge(&mut self, ns: u64) {
        policy_quota_charge(self, ns);
    }
}

/// The longest turn if so much is left.
pub fn turn(left_ns: i64) -> u64 {
    policy_quota_turn(left_ns)
}
