/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel types and functions that our programs use, instead of a generated vmlinux.h.
 *
 * Types are partial: because of `preserve_access_index`, libbpf determines each field's place from
 * the running kernel's type information when a program is loaded, so a struct here lists only the
 * fields that are used. Functions of the kernel are weak: a program checks bpf_ksym_exists() before
 * it calls one that some supported kernel lacks.
 */
#ifndef ECALLS_KERNEL_H
#define ECALLS_KERNEL_H

#include "abi/version.h"

typedef ecalls_u8 __u8;
typedef ecalls_u16 __u16;
typedef ecalls_u32 __u32;
typedef ecalls_s32 __s32;
typedef ecalls_u64 __u64;
typedef ecalls_s64 __s64;
typedef short __s16;
typedef signed char __s8;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u16 __sum16;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;

#define true 1
#define false 0

/* From the kernel's user API (linux/bpf.h), which cannot be included beside the types above. */
enum bpf_map_type___used {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_SOCKMAP = 15,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_MAP_TYPE_CGRP_STORAGE = 32,
};
enum {
	BPF_F_NO_PREALLOC = 1u << 0,
	BPF_F_CLONE = 1u << 9,
	BPF_F_MMAPABLE = 1u << 10,
	BPF_F_INNER_MAP = 1u << 12,
};
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};
enum {
	BPF_RB_NO_WAKEUP = 1u << 0,
	BPF_RB_FORCE_WAKEUP = 1u << 1,
	BPF_RB_AVAIL_DATA = 0,
};
enum {
	BPF_F_TIMER_ABS = 1u << 0,
	BPF_F_TIMER_CPU_PIN = 1u << 1,
};
enum {
	BPF_SK_STORAGE_GET_F_CREATE = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};
#define CLOCK_MONOTONIC 1

enum pid_type {
	PIDTYPE_TGID = 1,
};

struct bpf_timer {
	__u64 opaque[2];
} __attribute__((aligned(8)));
struct bpf_wq {
	__u64 opaque[2];
} __attribute__((aligned(8)));
struct bpf_res_spin_lock {
	__u32 val;
} __attribute__((aligned(4)));
struct bpf_spin_lock {
	__u32 val;
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
typedef struct {
	u32 val;
} kuid_t;
struct cred {
	kuid_t uid;
	kuid_t suid;
	kuid_t euid;
};
struct signal_struct {
	struct {
		int counter;
	} live; /* threads that have not exited */
	int group_exit_code;
	short oom_score_adj;
};
struct mm_struct;
struct cpumask {
	unsigned long bits[1]; /* actually as many bits as there are CPUs */
};
struct css_set;
/* Where the preemption count is: before Linux 6.15 on x86-64, and on arm64. */
struct pcpu_hot {
	int preempt_count;
};
struct thread_info {
	u64 preempt_count;
	u32 cpu;
};
struct task_struct {
	struct thread_info thread_info;
	int pid;
	int tgid;
	int prio;
	unsigned int policy;
	unsigned int flags;
	int exit_code;
	char comm[16];
	u64 start_boottime;
	u64 self_exec_id; /* counts execve(2) calls; threads have the value of their process */
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct signal_struct *signal;
	const struct cred *real_cred; /* its user, also while it acts for another one */
	unsigned int __state;
	struct mm_struct *mm;
	struct css_set *cgroups;
	const struct cpumask *cpus_ptr;
	unsigned short migration_disabled;
};
struct in6_addr {
	union {
		u8 u6_addr8[16];
	} in6_u;
};
struct net {
	u64 net_cookie;
};
struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	u16 skc_num;
	u16 skc_family;
	volatile unsigned char skc_state;
	struct {
		struct net *net;
	} skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	struct {
		s64 counter;
	} skc_cookie;
};
struct bpf_local_storage;
struct sock {
	struct sock_common __sk_common;
	struct bpf_local_storage *sk_bpf_storage;
	u32 sk_ack_backlog;
	u16 sk_protocol;
	u16 sk_type;
	u8 sk_shutdown;
	kuid_t sk_uid;
	struct {
		struct {
			int counter;
		} rmem_alloc; /* bytes in the receive queue, overhead included */
	} sk_backlog;
};
struct inet_sock {
	__be16 inet_sport; /* unchanged after the port is released */
};
struct request_sock {
	struct sock *sk; /* the connection, once it is established */
};
struct request_sock_queue {
	struct {
		int counter;
	} young; /* handshakes that have begun, and whose answer was sent once only */
	struct {
		int counter;
	} qlen; /* all handshakes that have begun */
	struct request_sock *rskq_accept_head;
};
struct inet_connection_sock {
	struct request_sock_queue icsk_accept_queue;
};
struct tcp_sock {
	u32 lsndtime; /* jiffies: when it was established, or last sent data */
	u32 rcv_nxt;
	u32 copied_seq;
	u32 snd_cwnd;
	u32 srtt_us; /* eight times the smoothed round-trip time */
	u32 total_retrans;
};
struct kernfs_iattrs {
	kuid_t ia_uid;
};
struct kernfs_node {
	const char *name;
	u64 id;
	struct kernfs_iattrs *iattr;
};
struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};
struct task_cputime {
	unsigned long long sum_exec_runtime;
};
struct cgroup_base_stat {
	struct task_cputime cputime;
};
struct psi_group {
	struct psi_group *parent;
	u64 total[12]; /* ns, by enum psi_states */
	u64 avg_last_update;
};
struct cgroup {
	struct cgroup_subsys_state self;
	int level;
	struct kernfs_node *kn;
	struct cgroup_base_stat bstat;
	struct psi_group *psi;
};
struct css_set {
	struct cgroup *dfl_cgrp;
};
struct percpu_counter {
	s64 count;
};
struct mm_struct___bits {
	struct {
		unsigned long __mm_flags[1];
	} flags; /* after 6.18 */
};
struct mm_struct {
	unsigned long flags;
	struct percpu_counter rss_stat[4];
};
struct gendisk {
	int major;
	int first_minor;
	char disk_name[32];
};
struct request_queue {
	struct gendisk *disk;
};
struct request {
	struct request_queue *q;
	u32 cmd_flags;
	u32 __data_len;
	u64 __sector;
};
struct linux_binprm {
	const char *filename;
	unsigned int secureexec : 1; /* the new program has rights that its caller has not */
};
struct kernel_siginfo {
	int si_signo;
	int si_code;
};
#pragma clang attribute pop

#define NMI_MASK (15u << 20) /* of a preemption count */
#define TASK_RUNNING 0
#define SCHED_BATCH 3 /* task_struct.policy */
#define SCHED_IDLE 5
#define PF_EXITING 0x4
#define PF_KTHREAD 0x200000
#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1
#define RCV_SHUTDOWN 1
#define TCP_ESTABLISHED 1
#define TCP_SYN_RECV 3
#define TCP_TIME_WAIT 6
#define TCP_CLOSE 7
#define TCP_LISTEN 10
#define TCP_NEW_SYN_RECV 12
#define IPPROTO_TCP 6
#define EAGAIN 11
#define EBUSY 16
#define EFAULT 14
#define EINVAL 22
#define EPERM 1
#define ENOENT 2
#define ESRCH 3
#define ECHILD 10
#define ENOSYS 38
#define ENOMEM 12
#define ENOSPC 28
#define E2BIG 7
#define EDQUOT 122

/* >= 6.15 */
extern int bpf_res_spin_lock_irqsave(struct bpf_res_spin_lock *lock, unsigned long *flags) __ksym
__weak;
extern void bpf_res_spin_unlock_irqrestore(struct bpf_res_spin_lock *lock, unsigned long *flags)
	__ksym __weak;
/* >= 6.10 */
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;
/* fires the tracepoint bpf_trigger_tp; >= 6.12 */
extern int bpf_modify_return_test_tp(int nonce) __ksym __weak;
extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym __weak;
/* < 6.15 */
extern const struct pcpu_hot pcpu_hot __ksym __weak;
/* by its number in the calling process's namespace; >= 6.15 */
extern struct task_struct *bpf_task_from_vpid(s32 vpid) __ksym __weak;
extern void bpf_task_release(struct task_struct *p) __ksym __weak;
extern void *bpf_rdonly_cast(const void *obj__ign, u32 btf_id__k) __ksym __weak;
/* >= 6.13 */
extern int bpf_send_signal_task(struct task_struct *task, int sig, enum pid_type type, u64 value)
	__ksym __weak;

#endif
