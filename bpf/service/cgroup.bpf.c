/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Periodic measurements of control groups (version 2): all of the cpu service, and the memory
 * service's PRESSURE.
 *
 * Each of the two has a sampler: a timer that starts a work item, which runs in a kernel thread
 * because summing up the CPUs' counters may sleep. It walks over all groups, children before their
 * parents, and compares each with its state at the previous walk, which is kept in the group's
 * storage. The first walk, and the first one that meets a new group, only store the state.
 *
 * Pressure is the kernel's pressure stall information: how long some, or all, of a group's threads
 * waited. The kernel updates it every two seconds while there is something to add (its measuring
 * interval); a walk that finds no update raises no event. The machine's pressure is found as that
 * of the parent of a group: while there is no group but the root, it is not raised. The kernel
 * counts no CPU time for the root, so the root gets the sum of its groups.
 *
 * The host starts a sampler after a subscription, and it runs while there is one. The host runs
 * sample_start, which fires the dispatcher's tracepoint with a number of our own; sample_begin is
 * attached to it only for that moment. This detour is necessary because only programs of the
 * tracing kind may call the summing function, so one of them must create the work item.
 */
#include "event/pinned.h"

#define SAMPLE_CPU 0u
#define SAMPLE_MEMORY 1u
#define SAMPLERS 2u
#define TRIGGER_SAMPLE 0x45430010 /* + number of the sampler; see raise.h for the others */
#define MEMORY_PERIOD_NS 2000000000ull
#define PERIOD_MIN_NS 10000000ull
#define PSI_INTERVAL_NS 2100000000ull /* the kernel's, with some slack */
#define ROOT_ID 1ull

#define CPU_WORDS (sizeof(struct ecalls_cpu_event) / 8)
_Static_assert(sizeof(struct ecalls_memory_event) == sizeof(struct ecalls_cpu_event), "one size");

union sample_data {
	struct ecalls_cpu_event cpu;
	struct ecalls_memory_event memory;
	u64 words[CPU_WORDS];
};

/* The state of a group at a sampler's last walk. */
struct group_sample {
	u64 walk_ns; /* time of that walk; if it is not the last one, the state is stored anew */
	u64 usage_ns;
	u64 some_ns; /* pressure */
	u64 full_ns;
	u64 measured_ns; /* end of the kernel's last measurement of pressure, by its clock */
};

/* Only the work item uses the fields after `due_ns`, and it never runs twice at the same time. */
struct sampler {
	struct bpf_timer timer;
	struct bpf_wq work;
	u64 due_ns;		 /* when the timer expires next; in the past: it is not armed */
	u64 walk_ns;		 /* time of the last walk */
	u64 machine;		 /* address of the machine's pressure; 0: not found in this walk */
	u64 used_ns;		 /* CPU time of the root's groups in this walk */
	struct group_sample now; /* of the group that is looked at: the stack has no room */
	union sample_data data;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SAMPLERS);
	__type(key, u32);
	__type(value, struct sampler);
} samplers SEC(".maps");

struct group_state {
	struct group_sample sample[SAMPLERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct group_state);
} group_states SEC(".maps");

struct bpf_iter_css {
	u64 opaque[3];
} __attribute__((aligned(8)));

enum psi_states {
	PSI_MEM_SOME = 2,
	PSI_MEM_FULL = 3,
	PSI_CPU_SOME = 4,
	PSI_CPU_FULL = 5,
};

#define BPF_CGROUP_ITER_DESCENDANTS_POST 3

extern struct cgroup *bpf_cgroup_from_id(u64 id) __ksym __weak;
extern void bpf_cgroup_release(struct cgroup *cgroup) __ksym __weak;
extern int bpf_iter_css_new(struct bpf_iter_css *it, struct cgroup_subsys_state *start,
			    unsigned int flags) __ksym __weak;
extern struct cgroup_subsys_state *bpf_iter_css_next(struct bpf_iter_css *it) __ksym __weak;
extern void bpf_iter_css_destroy(struct bpf_iter_css *it) __ksym __weak;
extern void bpf_rcu_read_lock(void) __ksym __weak;
extern void bpf_rcu_read_unlock(void) __ksym __weak;
extern int bpf_wq_init(struct bpf_wq *wq, void *map, unsigned int flags) __ksym __weak;
extern int bpf_wq_start(struct bpf_wq *wq, unsigned int flags) __ksym __weak;
/* Until 6.19 with a suffix, and the program as a hidden argument. */
extern int bpf_wq_set_callback_impl(struct bpf_wq *wq, int(callback)(void *, int *, void *),
				    unsigned int flags, void *aux) __ksym __weak;
extern int bpf_wq_set_callback(struct bpf_wq *wq, int(callback)(void *, int *, void *),
			       unsigned int flags) __ksym __weak;
/* Since 6.16; before, by the name below. */
extern void css_rstat_flush(struct cgroup_subsys_state *css) __ksym __weak;
extern void cgroup_rstat_flush(struct cgroup *cgroup) __ksym __weak;

static __always_inline u32 service_of(u32 which) {
	return which == SAMPLE_CPU ? ECALLS_SERVICE_CPU : ECALLS_SERVICE_MEMORY;
}

static __always_inline u64 parameter_of(u32 service) {
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);

	return s ? s->parameter : 0;
}

static __always_inline u64 period_of(u32 which) {
	u64 period_ns = which == SAMPLE_CPU ? parameter_of(ECALLS_SERVICE_CPU) : MEMORY_PERIOD_NS;

	return period_ns > PERIOD_MIN_NS ? period_ns : PERIOD_MIN_NS;
}

/* The user who owns the group's directory. */
static __always_inline u32 uid_of_group(struct cgroup *group) {
	struct kernfs_iattrs *attributes = BPF_CORE_READ(group, kn, iattr);

	return attributes ? BPF_CORE_READ(attributes, ia_uid.val) : 0;
}

static __always_inline u64 stalled_ns(u64 pressure, u32 state) {
	u64 at = pressure + bpf_core_field_offset(struct psi_group, total) + 8ull * state;
	u64 total_ns = 0;

	bpf_probe_read_kernel(&total_ns, sizeof(total_ns), (void *)at);
	return total_ns;
}

static __always_inline u64 measured_until(u64 pressure) {
	u64 at = pressure + bpf_core_field_offset(struct psi_group, avg_last_update);
	u64 until_ns = 0;

	bpf_probe_read_kernel(&until_ns, sizeof(until_ns), (void *)at);
	return until_ns;
}

/* Address of the group's pressure; 0: there is none, or it is unknown. */
static __always_inline u64 pressure_of(struct sampler *s, struct cgroup *group, u64 id) {
	u64 own;

	if (id == ROOT_ID)
		return s->machine;
	own = (u64)BPF_CORE_READ(group, psi);
	if (own && BPF_CORE_READ(group, level) == 1)
		s->machine = (u64)BPF_CORE_READ((struct psi_group *)own, parent);
	return own;
}

/* Verified once, and not on every path that leads here. */
__noinline int raise_sample(const union sample_data *data, u32 service, u32 kind, u32 uid) {
	struct raise r = {
		.service = service,
		.kind = kind,
		.target = ECALLS_TARGET_ALL,
		.flags = RAISE_NO_PID,
		.uid = uid,
		.size = sizeof(*data),
	};

	if (!data)
		return -EINVAL;
	return raise_preemptible(&r, data->words, CPU_WORDS);
}

/* `time_ns` as a part of `interval_ns`, in thousandths. */
static __always_inline u32 per_mille(u64 time_ns, u64 interval_ns) {
	return interval_ns ? time_ns * 1000 / interval_ns : 0;
}

/* The results of a walk for one group. */
struct finding {
	u64 id;
	u64 period_ns; /* since the previous walk */
	u64 usage_ns;
	u64 some_ns;
	u64 full_ns;
	u64 interval_ns; /* covered by the kernel's new measurements of pressure; 0: none */
	u32 uid;
	u32 pad;
};

static __always_inline void tell_cpu(struct sampler *s, struct cgroup *group,
				     const struct finding *f) {
	struct ecalls_cpu_event *e = &s->data.cpu;

	__builtin_memset(e, 0, sizeof(*e));
	e->cgroup = f->id;
	e->parent = BPF_CORE_READ(group, self.parent, cgroup, kn, id);
	e->period_ns = f->period_ns;
	e->usage_ns = f->usage_ns;
	e->utilization = per_mille(f->usage_ns, f->period_ns);
	e->pressure_some = per_mille(f->some_ns, f->interval_ns);
	e->pressure_full = per_mille(f->full_ns, f->interval_ns);
	bpf_probe_read_kernel_str(e->name, sizeof(e->name), BPF_CORE_READ(group, kn, name));
	if (f->usage_ns)
		raise_sample(&s->data, ECALLS_SERVICE_CPU, ECALLS_CPU_UTILIZATION, f->uid);
	if (e->pressure_some)
		raise_sample(&s->data, ECALLS_SERVICE_CPU, ECALLS_CPU_PRESSURE, f->uid);
}

static __always_inline void tell_memory(struct sampler *s, struct cgroup *group,
					const struct finding *f) {
	struct ecalls_memory_event *e = &s->data.memory;

	if (!f->some_ns || f->some_ns < parameter_of(ECALLS_SERVICE_MEMORY))
		return;
	__builtin_memset(&s->data, 0, sizeof(s->data));
	e->cgroup = f->id;
	e->duration_ns = f->some_ns;
	e->full_ns = f->full_ns;
	e->interval_ns = f->interval_ns;
	e->limited = f->id != ROOT_ID;
	bpf_probe_read_kernel_str(e->name, sizeof(e->name), BPF_CORE_READ(group, kn, name));
	raise_sample(&s->data, ECALLS_SERVICE_MEMORY, ECALLS_MEMORY_PRESSURE, f->uid);
}

static __always_inline u64 growth(u64 now, u64 before) {
	return now > before ? now - before : 0;
}

/* Compares a group's pressure with that of the last walk. The kernel stops measuring idle groups:
 * when it continues, its interval is not longer than usual. */
static __always_inline void compare_pressure(struct finding *f, struct group_sample *last,
					     const struct group_sample *now) {
	u64 longest_ns = f->period_ns + PSI_INTERVAL_NS;

	if (!last->measured_ns || now->measured_ns == last->measured_ns)
		return;
	f->interval_ns = growth(now->measured_ns, last->measured_ns);
	if (f->interval_ns > longest_ns)
		f->interval_ns = longest_ns;
	f->some_ns = growth(now->some_ns, last->some_ns);
	f->full_ns = growth(now->full_ns, last->full_ns);
	if (f->some_ns > f->interval_ns)
		f->some_ns = f->interval_ns;
	if (f->full_ns > f->some_ns)
		f->full_ns = f->some_ns;
}

/* Compares the group at `address` with its state at the previous walk, and raises its events.
 * Global, so that the verifier checks it once and not in each round of the loop; therefore the
 * address is a number, through which the function only reads. */
__noinline int sample_group(u64 address, struct group_sample *last, u32 which, u64 now_ns) {
	struct sampler *s = bpf_map_lookup_elem(&samplers, &which);
	struct cgroup *group = (struct cgroup *)address;
	struct group_sample *now;
	struct finding f = {.id = BPF_CORE_READ(group, kn, id)};
	bool memory = which == SAMPLE_MEMORY;
	u64 pressure;

	if (!s || !last)
		return 0;
	now = &s->now;
	__builtin_memset(now, 0, sizeof(*now));
	now->walk_ns = now_ns;
	if (!memory)
		now->usage_ns = BPF_CORE_READ(group, bstat.cputime.sum_exec_runtime);
	pressure = pressure_of(s, group, f.id);
	if (pressure) {
		now->some_ns = stalled_ns(pressure, memory ? PSI_MEM_SOME : PSI_CPU_SOME);
		now->full_ns = stalled_ns(pressure, memory ? PSI_MEM_FULL : PSI_CPU_FULL);
		now->measured_ns = measured_until(pressure);
	}
	if (last->walk_ns && last->walk_ns == s->walk_ns) {
		f.period_ns = now_ns - last->walk_ns;
		f.usage_ns = f.id == ROOT_ID ? s->used_ns : growth(now->usage_ns, last->usage_ns);
		if (BPF_CORE_READ(group, level) == 1)
			s->used_ns += f.usage_ns;
		f.uid = uid_of_group(group);
		compare_pressure(&f, last, now);
		if (memory)
			tell_memory(s, group, &f);
		else
			tell_cpu(s, group, &f);
	}
	*last = *now;
	return 0;
}

static __always_inline void walk(struct sampler *s, u32 which, u64 now_ns) {
	struct cgroup *root = bpf_cgroup_from_id(ROOT_ID);
	struct cgroup_subsys_state *css;

	if (!root)
		return;
	if (which == SAMPLE_CPU) {
		if (bpf_ksym_exists(css_rstat_flush))
			css_rstat_flush(&root->self);
		else if (bpf_ksym_exists(cgroup_rstat_flush))
			cgroup_rstat_flush(root);
	}
	s->machine = 0;
	s->used_ns = 0;
	bpf_rcu_read_lock();
	bpf_for_each (css, css, &root->self, BPF_CGROUP_ITER_DESCENDANTS_POST) {
		/* Read once: for each pointer that is followed from a trusted one, the verifier
		 * searches all types of the kernel, some milliseconds on each path. */
		struct cgroup *group = css->cgroup;
		struct group_state *state;

		if (!group)
			continue;
		state = bpf_cgrp_storage_get(&group_states, group, 0,
					     BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!state)
			continue; /* no memory: its events begin with a later walk */
		sample_group((u64)BPF_CORE_READ(css, cgroup), &state->sample[which], which, now_ns);
	}
	bpf_rcu_read_unlock();
	bpf_cgroup_release(root);
	s->walk_ns = now_ns;
}

static int sample_work(void *map, int *key, void *value) {
	struct sampler *s = value;
	u32 which = *key == SAMPLE_MEMORY ? SAMPLE_MEMORY : SAMPLE_CPU;
	u64 now_ns = bpf_ktime_get_ns();

	walk(s, which, now_ns);
	s->due_ns = now_ns + period_of(which);
	bpf_timer_start(&s->timer, s->due_ns, BPF_F_TIMER_ABS);
	return 0;
}

static int sample_due(void *map, u32 *key, struct sampler *s) {
	if (raise_wanted(service_of(*key)))
		bpf_wq_start(&s->work, 0);
	return 0;
}

/* Creates timer and work item. Calling it again has no effect. */
static __always_inline int sampler_prepare(struct sampler *s) {
	int error = bpf_timer_init(&s->timer, &samplers, CLOCK_MONOTONIC);

	if (error)
		return error;
	error = bpf_timer_set_callback(&s->timer, sample_due);
	if (error)
		return error;
	error = bpf_wq_init(&s->work, &samplers, 0);
	if (error)
		return error;
	if (bpf_ksym_exists(bpf_wq_set_callback_impl))
		return bpf_wq_set_callback_impl(&s->work, sample_work, 0, 0);
	return bpf_wq_set_callback(&s->work, sample_work, 0);
}

SEC("tp_btf/bpf_trigger_tp")
int BPF_PROG(sample_begin, int nonce) {
	u32 which = (u32)nonce - TRIGGER_SAMPLE;
	struct sampler *s;
	int error;

	if (which >= SAMPLERS)
		return 0;
	s = bpf_map_lookup_elem(&samplers, &which);
	if (!s)
		return 0;
	error = sampler_prepare(s);
	/* A running sampler continues, unless its period has become shorter. */
	if (!error || error == -EBUSY)
		if (s->due_ns <= bpf_ktime_get_ns() ||
		    s->due_ns > bpf_ktime_get_ns() + period_of(which))
			bpf_wq_start(&s->work, 0);
	return 0;
}

struct sample_argument {
	u32 service;
};

/* The host runs it, with sample_begin attached, after a subscription to the service. */
SEC("syscall")
int sample_start(struct sample_argument *argument) {
	u32 which = argument->service == ECALLS_SERVICE_MEMORY ? SAMPLE_MEMORY : SAMPLE_CPU;

	bpf_modify_return_test_tp(TRIGGER_SAMPLE + which);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
