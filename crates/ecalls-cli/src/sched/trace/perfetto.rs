//! The messages of Perfetto's trace format that are written, with the names and numbers of its
//! definition (perfetto.dev, protos/perfetto/trace).

use prost::Message;

pub(crate) const SLICE_BEGIN: i32 = 1;
pub(crate) const SLICE_END: i32 = 2;
pub(crate) const INSTANT: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub(crate) packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TracePacket {
    #[prost(message, optional, tag = "1")]
    pub(crate) ftrace_events: Option<FtraceEventBundle>,
    #[prost(message, optional, tag = "2")]
    pub(crate) process_tree: Option<ProcessTree>,
    /// Of the clock BOOTTIME by default.
    #[prost(uint64, optional, tag = "8")]
    pub(crate) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub(crate) trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub(crate) track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "60")]
    pub(crate) track_descriptor: Option<TrackDescriptor>,
}

/// The events of one CPU.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FtraceEventBundle {
    #[prost(uint32, optional, tag = "1")]
    pub(crate) cpu: Option<u32>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) event: Vec<FtraceEvent>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FtraceEvent {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) timestamp: Option<u64>,
    /// The thread that ran.
    #[prost(uint32, optional, tag = "2")]
    pub(crate) pid: Option<u32>,
    #[prost(message, optional, tag = "4")]
    pub(crate) sched_switch: Option<SchedSwitch>,
    #[prost(message, optional, tag = "20")]
    pub(crate) sched_waking: Option<SchedWaking>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SchedSwitch {
    #[prost(string, optional, tag = "1")]
    pub(crate) prev_comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) prev_pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub(crate) prev_prio: Option<i32>,
    #[prost(int64, optional, tag = "4")]
    pub(crate) prev_state: Option<i64>,
    #[prost(string, optional, tag = "5")]
    pub(crate) next_comm: Option<String>,
    #[prost(int32, optional, tag = "6")]
    pub(crate) next_pid: Option<i32>,
    #[prost(int32, optional, tag = "7")]
    pub(crate) next_prio: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SchedWaking {
    #[prost(string, optional, tag = "1")]
    pub(crate) comm: Option<String>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub(crate) prio: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub(crate) success: Option<i32>,
    #[prost(int32, optional, tag = "5")]
    pub(crate) target_cpu: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProcessTree {
    #[prost(message, repeated, tag = "1")]
    pub(crate) processes: Vec<Process>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) threads: Vec<Thread>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Process {
    #[prost(int32, optional, tag = "1")]
    pub(crate) pid: Option<i32>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) cmdline: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Thread {
    #[prost(int32, optional, tag = "1")]
    pub(crate) tid: Option<i32>,
    #[prost(string, optional, tag = "2")]
    pub(crate) name: Option<String>,
    /// Its process.
    #[prost(int32, optional, tag = "3")]
    pub(crate) tgid: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(crate) name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    pub(crate) thread: Option<ThreadDescriptor>,
    /// The track below which it is shown.
    #[prost(uint64, optional, tag = "5")]
    pub(crate) parent_uuid: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(crate) pid: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(crate) pid: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    pub(crate) tid: Option<i64>,
    #[prost(string, optional, tag = "5")]
    pub(crate) thread_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    pub(crate) debug_annotations: Vec<DebugAnnotation>,
    /// SLICE_BEGIN, SLICE_END, INSTANT
    #[prost(int32, optional, tag = "9")]
    pub(crate) r#type: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    pub(crate) track_uuid: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    pub(crate) categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    pub(crate) name: Option<String>,
    /// Perfetto connects the events of one flow by an arrow.
    #[prost(fixed64, repeated, tag = "47")]
    pub(crate) flow_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DebugAnnotation {
    #[prost(uint64, optional, tag = "3")]
    pub(crate) uint_value: Option<u64>,
    #[prost(string, optional, tag = "10")]
    pub(crate) name: Option<String>,
}
