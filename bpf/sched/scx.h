/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The types, constants and functions of sched_ext that our scheduler uses.
 *
 * As in kernel.h, types are partial: libbpf finds each member of struct sched_ext_ops in the
 * running kernel's type information by name, and the numbers of flags and queues are relocated
 * (SCX_NUMBER), because they are the kernel's own and not part of its user API.
 */
#ifndef ECALLS_SCHED_SCX_H
#define ECALLS_SCHED_SCX_H

#include "kernel.h"

/* The value of an enumerator in the running kernel. */
#define SCX_NUMBER(type, name) bpf_core_enum_value(enum type, name)

enum scx_dsq_id_flags {
	SCX_DSQ_LOCAL = 0x8000000000000002ull,
	SCX_DSQ_LOCAL_ON = 0xc000000000000000ull,
};
enum scx_enq_flags {
	SCX_ENQ_WAKEUP = 1,
	SCX_ENQ_HEAD = 16,
	SCX_ENQ_PREEMPT = 1ull << 32,
	SCX_ENQ_LAST = 1ull << 41,
	SCX_ENQ_IMMED = 1ull << 33,
};
enum scx_exit_code {
	SCX_ECODE_ACT_RESTART = 1ull << 48,
};
enum scx_dsq_iter_flags {
	SCX_DSQ_ITER_REV = 1u << 16,
};
enum scx_deq_flags {
	SCX_DEQ_SLEEP = 1,
};
enum scx_kick_flags {
	SCX_KICK_IDLE = 1,
	SCX_KICK_PREEMPT = 2,
};
enum scx_exit_kind {
	SCX_EXIT_NONE,
};
enum scx_ent_flags {
	SCX_TASK_QUEUED = 1,
};
enum cgroup_subsys_id {
	cpu_cgrp_id = 1,
};
enum scx_ops_flags {
	SCX_OPS_KEEP_BUILTIN_IDLE = 1,
	SCX_OPS_ENQ_LAST = 2,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct scx_dispatch_q {
	u32 nr; /* tasks in it */
};
struct sched_ext_entity {
	struct scx_dispatch_q *dsq;
	u32 weight;
	u32 flags;
	u64 slice;
	u64 dsq_vtime;
};
struct sigpending {
	struct {
		unsigned long sig[1];
	} signal;
};
/* Fields of task_struct in addition to those in kernel.h. */
struct task_struct___scx {
	struct sched_ext_entity scx;
	int nr_cpus_allowed;
	int rcu_read_lock_nesting;
	struct sigpending pending;
};
struct scx_init_task_args {
	bool fork;
	struct cgroup *cgroup;
};
struct scx_cgroup_init_args {
	u32 weight;
	u64 bw_period_us;
	u64 bw_quota_us;
	u64 bw_burst_us;
};
struct scx_task_group {
	bool idle;
};
/* The data of the kernel's schedulers about a control group; it begins with its entry in subsys. */
struct task_group {
	struct scx_task_group scx;
};
struct cgroup___cpu {
	struct task_group *subsys[1]; /* in the kernel, one per subsystem */
};
struct scx_exit_task_args {
	bool cancelled;
};
/* What a CPU runs: its real-time threads that are ready. */
struct rt_rq {
	unsigned int rt_nr_running;
};
struct rq {
	struct rt_rq rt;
};
struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	const char *msg;
};
#pragma clang attribute pop

/* An iterator over a dispatch queue. */
struct bpf_iter_scx_dsq {
	u64 opaque[6];
} __attribute__((aligned(8)));

struct sched_ext_ops {
	u32 timeout_ms; /* the first one: the loader sets it */
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*quiescent)(struct task_struct *p, u64 deq_flags);
	void (*set_weight)(struct task_struct *p, u32 weight);
	void (*enable)(struct task_struct *p);
	void (*disable)(struct task_struct *p);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
	s32 (*cgroup_init)(struct cgroup *cgroup, struct scx_cgroup_init_args *args);
	void (*cgroup_exit)(struct cgroup *cgroup);
	void (*cgroup_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_set_weight)(struct cgroup *cgroup, u32 weight);
	void (*cgroup_set_idle)(struct cgroup *cgroup, bool idle);
	void (*cgroup_set_bandwidth)(struct cgroup *cgroup, u64 period_us, u64 quota_us,
				     u64 burst_us);
	void (*cpu_online)(s32 cpu);
	void (*cpu_offline)(s32 cpu);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	char name[128];
};

extern s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym __weak;
extern s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags,
				  bool *is_idle) __ksym __weak;
extern void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym
__weak;
extern void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
				     u64 enq_flags) __ksym __weak;
extern bool scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym __weak;
extern s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym __weak;
extern struct task_struct *scx_bpf_dsq_peek(u64 dsq_id) __ksym __weak;
extern bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
			     u64 enq_flags) __ksym __weak;
extern void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym __weak;
extern bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
				   u64 enq_flags) __ksym __weak;
extern int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym __weak;
extern struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym __weak;
extern void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym __weak;
extern void scx_bpf_exit_bstr(s64 exit_code, char *format, unsigned long long *data, u32 data_size)
	__ksym __weak;
extern void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym __weak;
/* libbpf drops the last suffix. The function without any may only be called where a CPU is given up
 * to another class. */
extern void scx_bpf_reenqueue_local___v2___own(void) __ksym __weak;
extern const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym __weak;
extern void scx_bpf_put_cpumask(const struct cpumask *cpumask) __ksym __weak;
extern bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym __weak;
extern bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym __weak;
extern u64 scx_bpf_now(void) __ksym __weak;
extern int LINUX_KERNEL_VERSION __kconfig;
extern const struct rq runqueues __ksym; /* one per CPU */

/* A program may store a task's slice itself up to this kernel. Later ones may refuse that; the call
 * takes 120 instructions more. */
#define SLICE_STORED_UNTIL (7 << 16 | 3 << 8 | 255)

/* The CPU of a task, as in the kernel's task_cpu. */
static __always_inline u32 task_cpu(const struct task_struct *p) {
	return p->thread_info.cpu;
}

/* Sets what is left of a task's slice. */
static __always_inline void task_set_slice(struct task_struct *p, u64 slice) {
	if (LINUX_KERNEL_VERSION <= SLICE_STORED_UNTIL)
		((struct task_struct___scx *)p)->scx.slice = slice;
	else
		scx_bpf_task_set_slice(p, slice);
}

#endif
