//! The mirror as data: every struct with its fields' offsets, and every constant with its value.
//!
//! Two tests read it: one compares it with the headers by the C compiler (`headers.rs`), the other
//! with the BTF of the compiled kernel side (`layout.rs` of ecalls-kernel). Names are the headers',
//! so that a report names the definition.

pub(crate) mod constants;

use std::mem::offset_of;

use ecalls_abi::{
    activation, answer, audience, channel, coop, downcall, ecode, event, fate, guard, lane,
    message, ready, relay, runtime, sched, service, sink, subscription, upload, user, wire,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) offset: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Struct {
    /// Its tag in the header: `ecalls_event`.
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    /// Its fields, in order, without gaps: padding is a field.
    pub(crate) fields: &'static [Field],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Constant {
    /// Its name in the header, without `ECALLS_`.
    pub(crate) name: &'static str,
    pub(crate) value: i64,
}

/// A field's name in C: `type`, not `r#type`.
const fn c_name(name: &'static str) -> &'static str {
    let [b'r', b'#', rest @ ..] = name.as_bytes() else {
        return name;
    };
    match std::str::from_utf8(rest) {
        Ok(rest) => rest,
        Err(_) => name,
    }
}

macro_rules! describe {
    ($name:literal, $type:path, [$($field:ident)*]) => {
        Struct {
            name: $name,
            size: size_of::<$type>(),
            fields: &[
                $(Field {
                    name: c_name(stringify!($field)),
                    offset: offset_of!($type, $field),
                }),*
            ],
        }
    };
}

/// Every struct of `abi/`.
pub(crate) const STRUCTS: &[Struct] = &[
    describe!("ecalls_event", event::Event, [
        sequence id raise_ns deadline_ns release_ns service kind r#type target flags priority
        pid tid uid cpu size subscription data]),
    describe!("ecalls_up", channel::Up, [
        flag back version layout capacity slot_use channel width pad0 front sleeping wake_at
        wake_by_ns pad1 pattern]),
    describe!("ecalls_guard_page", guard::GuardPage, [told numconnects since_ns served]),
    describe!("ecalls_answer_cell", answer::AnswerCell, [
        sequence request_bytes reply_bytes sum request reply]),
    describe!("ecalls_answer_input", answer::AnswerInput, [
        length family remote_port remote_ip data]),
    describe!("ecalls_answer_count", answer::AnswerCount, [
        answered dropped passed unproven failed up empty torn other too_long limited unsent]),
    describe!("ecalls_answer_lease", answer::AnswerLease, [
        version cells echo_bytes text_bytes]),
    describe!("ecalls_lost", channel::Lost, [late dropped filtered pad]),
    describe!("ecalls_channel", channel::Channel, [
        state id owner uid layout capacity slot_use defer owner_start delay_ns user width]),
    describe!("ecalls_action", subscription::Action, [
        kind flags handler channel signal pad argument]),
    describe!("ecalls_subscription", subscription::Subscription, [
        state id service owner receiver uid kinds pid scope owner_uid user channel deadline_ns
        actions plain receiver_start owner_start cpu_priority order ended_ns ready sole
        event_flags pad1 stored pad2 action]),
    describe!("ecalls_service", service::Service, [
        state owner active next deadline_ns parameter owner_start flip_ns user owner_uid own
        traced count slow slow_own sole list]),
    describe!("ecalls_service_info", service::ServiceInfo, [name format kinds]),
    describe!("ecalls_service_count", service::ServiceCount, [
        raised dispatched late dropped refused latency_ns latency_ns_max failed direct pad]),
    describe!("ecalls_service_latency", service::ServiceLatency, [count]),
    describe!("ecalls_subscription_count", service::SubscriptionCount, [
        offered delivered filtered late dropped wakes signals threads handlers partial failed
        undone direct stopped]),
    describe!("ecalls_socket_event", service::SocketEvent, [
        cookie bytes backlog family local_port remote_port inherited remote_ip4 pad]),
    describe!("ecalls_socket_interest", service::SocketInterest, [
        target r#type kinds inherit deadline_ns pid uid user pad]),
    describe!("ecalls_timer_event", service::TimerEvent, [expiry_ns count overrun timer pad]),
    describe!("ecalls_task_event", service::TaskEvent, [pid tid parent child code thread comm]),
    describe!("ecalls_sched_event", service::SchedEvent, [delay_ns pid tid priority previous comm]),
    describe!("ecalls_net_event", service::NetEvent, [
        cookie round_trip_us retransmits window local_port remote_port local_ip remote_ip state
        former]),
    describe!("ecalls_disk_event", service::DiskEvent, [
        latency_ns device_ns sector bytes status major minor disk comm]),
    describe!("ecalls_memory_event", service::MemoryEvent, [
        duration_ns full_ns interval_ns pages cgroup limited pid score pad comm name]),
    describe!("ecalls_cpu_event", service::CpuEvent, [
        cgroup parent period_ns usage_ns utilization pressure_some pressure_full pad name]),
    describe!("ecalls_host", service::Host, [
        version pid cpus ready start_ns flags pad mechanism map_ids prog_ids link_ids]),
    describe!("ecalls_audience_key", audience::AudienceKey, [service sort who]),
    describe!("ecalls_audience", audience::Audience, [
        state next deadline_ns retired_ns count pad list]),
    describe!("ecalls_fate", fate::Fate, [
        sequence event when_ns raise_ns release_ns deadline_ns subscription uid pid service kind
        what reason stage action pad]),
    describe!("ecalls_user", user::User, [
        state uid up_per_s raise_per_s handler_ns_per_s up_burst raise_burst queued_max
        timers_max timer_per_s timer_burst pad0 up_tat offered up_throttled pad1 raise_tat
        raised raise_throttled queue_throttled timers_throttled queued timers timer_tat
        timer_throttled handler_tat handler_ns handler_throttled pad3]),
    describe!("ecalls_processor", activation::Processor, [active spares told untold pad]),
    describe!("ecalls_activation", activation::Activation, [lock processor]),
    describe!("ecalls_activations", activation::Activations, [processor activation]),
    describe!("ecalls_ready_word", ready::ReadyWord, [fd_active fd_list]),
    describe!("ecalls_readiness", ready::Readiness, [flag sleeping hints wakes pad word]),
    describe!("ecalls_ready_call", ready::ReadyCall, [key row number]),
    describe!("ecalls_runtime_processor", runtime::RuntimeProcessor, [
        switches left told untold reclaimed restarts trace_until_ns turns unblocked
        pad]),
    describe!("ecalls_runtime_activation", runtime::RuntimeActivation, [
        tid state processor thread]),
    describe!("ecalls_runtime_name", runtime::RuntimeName, [thread name]),
    describe!("ecalls_runtime_turn", runtime::RuntimeTurn, [at_ns tid thread]),
    describe!("ecalls_runtime_turns", runtime::RuntimeTurns, [turn]),
    describe!("ecalls_runtime", runtime::Runtime, [
        version processors activations_max flags begun ended refused pad processor activation
        name]),
    describe!("ecalls_coop", coop::Coop, [
        release_ns importance polls flags pad0 window window_wishes window_left met missed
        violated next_release_ns least_importance slice_end_ns dispatch_ns overran slept ahead
        state answered]),
    describe!("ecalls_sched_count", sched::SchedCount, [
        chosen kept preempted balanced stolen entered left full polls overran slept ahead
        releases tardiest_ns windows refused untraced parked overdue tardiness]),
    describe!("ecalls_sched_samples", sched::SchedSamples, [max_ns count]),
    describe!("ecalls_sched_seen", sched::SchedSeen, [
        state kind pid tid uid group within cpu since_ns ready_ns began_ns run_ns overran slept
        ahead comm tardiness delay slice]),
    describe!("ecalls_sched_run", sched::SchedRun, [from_ns to_ns pid tid kind pad comm]),
    describe!("ecalls_sched_culprit", sched::SchedCulprit, [ran_ns pid tid kind pad comm]),
    describe!("ecalls_sched_worst", sched::SchedWorst, [
        at_ns release_ns tardy_ns before_ns rest_ns pid tid cpu group comm by]),
    describe!("ecalls_sched_watch", sched::SchedWatch, [least_ns forgotten_ns next pad run worst]),
    describe!("ecalls_sched_note", sched::SchedNote, [
        at_ns value more what cpu pid tid other which comm]),
    describe!("ecalls_down", downcall::Down, [
        back latest pad0 front handled refused drains pad1 pad2]),
    describe!("ecalls_downcall", downcall::Downcall, [op pad argument result sequence pad1]),
    describe!("ecalls_generic", downcall::Generic, [
        service op channel target kind r#type flags priority size deadline_us release_us
        argument result rest data]),
    describe!("ecalls_message", message::Message, [version kind serial size]),
    describe!("ecalls_hello", message::Hello, [abi_version pad]),
    describe!("ecalls_number", message::Number, [number pad]),
    describe!("ecalls_name", message::Name, [name]),
    describe!("ecalls_open_channel", message::OpenChannel, [
        layout capacity slot_use defer delay_ns width pad]),
    describe!("ecalls_subscribe", message::Subscribe, [
        service receiver kinds pid deadline_ns channel actions flags pad action]),
    describe!("ecalls_replace_handler", message::ReplaceHandler, [subscription action]),
    describe!("ecalls_upload", upload::Upload, [version bytes attributes pad name attribute]),
    describe!("ecalls_watch_socket", message::WatchSocket, [
        target r#type kinds inherit deadline_ns flags pad]),
    describe!("ecalls_set_parameter", message::SetParameter, [service pad value]),
    describe!("ecalls_look_fate", message::LookFate, [event older_ns]),
    describe!("ecalls_done", message::Done, [value]),
    describe!("ecalls_welcome", message::Welcome, [
        abi_version pid uid cpus daemon services start_ns mechanism]),
    describe!("ecalls_refused", message::Refused, [error pad number subject given text]),
    describe!("ecalls_service_view", message::ServiceView, [
        index owner subscriptions attached parameter info count skipped]),
    describe!("ecalls_wire", wire::Wire, [
        magic version size channel host epoch sequence format request sinks left_ns kind r#type
        priority attributes number value]),
    describe!("ecalls_lane_channel", lane::LaneChannel, [
        id format host epoch sinks out owner_start owner uid service way data_max
        pad]),
    describe!("ecalls_lane_count", lane::LaneCount, [frames raised refused]),
    describe!("ecalls_lane_key", lane::LaneKey, [channel host]),
    describe!("ecalls_window", lane::Window, [
        epoch first highest seen former fresh duplicate stale last_ns]),
    describe!("ecalls_lane_source", lane::LaneSource, [lock window told_ns value]),
    describe!("ecalls_sink", sink::Sink, [sent failed address source interface family member pad]),
    describe!("ecalls_lane_out", sink::LaneOut, [
        events none filtered refused fanned frames sent late gone failed fault]),
    describe!("ecalls_lane_share", sink::LaneShare, [put taken]),
    describe!("ecalls_sink_told", sink::SinkTold, [id told_ns value]),
    describe!("ecalls_relay_message", relay::RelayMessage, [
        version kind size reason host format address pad]),
    describe!("ecalls_relay_channel", relay::RelayChannel, [
        cluster name interface format kinds creator policy pad]),
    describe!("ecalls_relay_counts", relay::RelayCounts, [count]),
    describe!("ecalls_effect", ecode::Effect, [kind number value]),
    describe!("ecalls_frame", ecode::Frame, [
        now_ns random result fuel fault effects drop output_bytes channel sinks_present accepted
        rejected zero fault_place pad0 pad1 effect output locals]),
    describe!("ecalls_subscription_view", message::SubscriptionView, [next pad row count]),
    describe!("ecalls_channel_view", message::ChannelView, [next pad row]),
    describe!("ecalls_queue_view", message::QueueView, [next owner ready held]),
    describe!("ecalls_user_view", message::UserView, [next uid raised used limit count]),
    describe!("ecalls_fate_view", message::FateView, [
        event when_ns raise_ns release_ns deadline_ns service kind subscription uid pid what
        reason stage quota name]),
];
