/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Services: the sources of events, their counters, and the data of each built-in service's events.
 *
 * The kernel side reads `struct ecalls_service` for every event; people and programs read `struct
 * ecalls_service_info` (name, format). The subscriber list is
 * double: the host writes the list that is not in use, waits until no program reads it any more,
 * and flips `active`.
 */
#ifndef ECALLS_SERVICE_H
#define ECALLS_SERVICE_H

#include "channel.h"

#define ECALLS_SLOW_CHAIN 256u
#define ECALLS_SLOW_FILTERS 24u /* filters that run without the queue; with more, all use it */

struct ecalls_service {
	ecalls_u32 state;	/* ECALLS_STATE_* */
	ecalls_u32 owner;	/* process of an application service; 0: built in */
	ecalls_u32 active;	/* which of the two lists is in use: 0 or 1 */
	ecalls_u32 next;	/* wake-one: whose turn it is; written by the kernel side */
	ecalls_u64 deadline_ns; /* smallest relative deadline of the subscriptions; 0: none */
	ecalls_u64 parameter;	/* built in: threshold or period, ns, as the service says below;
				   applications': how many names the row has had */
	ecalls_u64 owner_start; /* start time of the owner (since boot, ns), against pid reuse */
	ecalls_u64 flip_ns;	/* when `active` was last flipped; host only */
	ecalls_u32 user;	/* row of abi/user.h of an application service */
	ecalls_u32 owner_uid;	/* user of its owner */
	ecalls_u32 own;		/* built in: subscriptions with scope OWN (abi/audience.h) */
	ecalls_u32 traced;	/* until when deliveries are traced, in 2^30 ns; 0: they are not */
	ecalls_u32 count[2];	/* subscriptions in each list */
	ecalls_u32 slow[2];	/* what these do beside one put (subscription.plain): a filter
				   counts 1, any other chain ECALLS_SLOW_CHAIN */
	ecalls_u32 slow_own;	/* the same of those with scope OWN */
	ecalls_u32 sole; /* 1 + the only subscription, if that has `sole`; 0: there are others */
	ecalls_u32 list[2][ECALLS_SUBSCRIBERS_MAX]; /* indices, in order of delivery */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_service) == 600, "service");

struct ecalls_service_info {
	char name[ECALLS_NAME_MAX];
	char format
		[ECALLS_FORMAT_MAX]; /* fields of the data: "u64 cookie; u16 port; char comm[16]" */
	char kinds[ECALLS_FORMAT_MAX]; /* names of the kinds, in order: "data connection" */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_service_info) == 1056, "service info");

/* Event counts of a service (one per CPU; sum them). raised = dispatched + late + sum(dropped). */
struct ecalls_service_count {
	ecalls_u64 raised;     /* raise_event called, bad arguments excluded */
	ecalls_u64 dispatched; /* taken from the queue in time and offered to subscriptions */
	ecalls_u64 late;       /* taken from the queue after their deadline */
	ecalls_u64 dropped[ECALLS_DROP_REASONS];
	ecalls_u64 refused; /* not raised: too much data, or the caller is not the owner */
	ecalls_u64
		latency_ns; /* sum over dispatched events of dispatch time - max(raise, release) */
	ecalls_u64 latency_ns_max;
	ecalls_u64 failed; /* runs of its own program that ended in a fault (E-code) */
	ecalls_u64 direct; /* raised and dispatched at once; not in `raised` and `dispatched` */
	ecalls_u64 pad;
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_service_count) == 192, "service count");

/* How long dispatched events of a service took from raise or release on (one per CPU; sum them):
 * count[i] is those of 2^i ns to 2^(i+1) ns, the first one's less as well, the last one's more. */
#define ECALLS_LATENCY_BUCKETS 32u
struct ecalls_service_latency {
	ecalls_u64 count[ECALLS_LATENCY_BUCKETS];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_service_latency) == 256, "service latency");

/* Offers of events to a subscription (one per CPU; sum them).
 * offered = delivered + filtered + late + sum(dropped) once no event is in a queue. */
struct ecalls_subscription_count {
	ecalls_u64 offered;
	ecalls_u64 delivered; /* the chain reached a delivery (memory, signal or user handler) that
				 succeeded, or its end */
	ecalls_u64 filtered;  /* a handler ended the chain before any delivery */
	ecalls_u64 late;
	ecalls_u64 dropped[ECALLS_DROP_REASONS];
	ecalls_u64 wakes;    /* wake-ups of a sleeping reader */
	ecalls_u64 signals;  /* real-time signals queued */
	ecalls_u64 threads;  /* runs of a kernel thread */
	ecalls_u64 handlers; /* runs of a kernel handler */
	ecalls_u64 partial;  /* of the delivered: another action of the chain could not deliver; the
				 channel concerned shows why */
	ecalls_u64 failed;   /* of the runs of a handler: E-code that ended in a fault */
	ecalls_u64 undone;   /* requests of E-code (signal, raise, ...) that could not be done */
	ecalls_u64 direct;   /* offered and delivered at once; not in `offered` and `delivered` */
	ecalls_u64 stopped;  /* the same, filtered: not in `offered` and `filtered` */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_subscription_count) == 224, "subscription count");

/* The built-in services, at fixed indices. Application services follow. */
#define ECALLS_SERVICE_SOCKET 0u
#define ECALLS_SERVICE_TIMER 1u
#define ECALLS_SERVICE_TASK 2u
#define ECALLS_SERVICE_SCHED 3u
#define ECALLS_SERVICE_CORE 4u /* the core's own tests and measurements */
#define ECALLS_SERVICE_NET 5u
#define ECALLS_SERVICE_DISK 6u
#define ECALLS_SERVICE_MEMORY 7u
#define ECALLS_SERVICE_CPU 8u
#define ECALLS_SERVICE_USER 16u /* index of the first application service */

/* socket: kinds */
#define ECALLS_SOCKET_DATA 0u
#define ECALLS_SOCKET_CONNECTION 1u
struct ecalls_socket_event {
	ecalls_u64 cookie;  /* the kernel's socket cookie; stays the same for the socket's life */
	ecalls_u32 bytes;   /* DATA: bytes waiting (TCP), or datagrams' bytes (UDP) */
	ecalls_u32 backlog; /* CONNECTION: completed connections waiting for accept */
	ecalls_u16 family;  /* AF_INET, AF_INET6, AF_UNIX */
	ecalls_u16 local_port;
	ecalls_u16 remote_port;
	ecalls_u16 inherited;  /* 1: registered through its listener */
	ecalls_u32 remote_ip4; /* network byte order; 0 for other families */
	ecalls_u32 pad;
};

/* The registration of a socket (socket storage). Written through the fd by the host. */
struct ecalls_socket_interest {
	ecalls_s32 target; /* process that receives, or ECALLS_TARGET_* */
	ecalls_u32
		type; /* event.type of its events: the fd, or any number below ECALLS_SLOTS_MAX */
	ecalls_u32 kinds;	/* bit k: raise kind k */
	ecalls_u32 inherit;	/* 1: accepted connections are registered too */
	ecalls_u64 deadline_ns; /* relative; 0: none */
	ecalls_u32 pid;		/* process that registered it: pid and uid of its events */
	ecalls_u32 uid;		/* its user */
	ecalls_u32 user;	/* row of abi/user.h that is charged for its waiting events */
	ecalls_u32 pad;
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_socket_interest) == 40, "socket interest");

/* timer: kind 0, an expiry */
struct ecalls_timer_event {
	ecalls_u64 expiry_ns; /* the time at which it was due */
	ecalls_u64 count;     /* expiries of this timer so far, this one included */
	ecalls_u64 overrun;   /* periods that passed without an event of their own */
	ecalls_u32 timer;     /* number of the timer */
	ecalls_u32 pad;
};

/* task: kinds */
#define ECALLS_TASK_FORK 0u
#define ECALLS_TASK_EXEC 1u
#define ECALLS_TASK_EXIT 2u
struct ecalls_task_event {
	ecalls_u32 pid; /* process that forked, executed or exited */
	ecalls_u32 tid;
	ecalls_u32 parent; /* its parent process */
	ecalls_u32 child;  /* FORK: id of the new thread or process */
	ecalls_u32 code;   /* EXIT: wait status */
	ecalls_u32 thread; /* 1: a thread of a process, not a process */
	char comm[16];
};

/* sched: kind 0, a thread waited on a run queue for longer than the threshold */
struct ecalls_sched_event {
	ecalls_u64 delay_ns; /* time on the run queue */
	ecalls_u32 pid;
	ecalls_u32 tid;
	ecalls_u32 priority; /* kernel priority: 0..99 real time, 100..139 fair */
	ecalls_u32 previous; /* thread that ran before it; 0 with scope OWN: it may be another's */
	char comm[16];
};

/* net: kinds. Events of TCP sockets, in the name of the socket's user; of no process (pid 0).
 * Parameter: the smallest round-trip time to report. */
#define ECALLS_NET_RETRANSMIT 0u /* a segment was sent again */
#define ECALLS_NET_ROUND_TRIP 1u /* the round-trip time is above the threshold */
#define ECALLS_NET_STATE 2u	 /* the connection changed its state */
struct ecalls_net_event {
	ecalls_u64 cookie;	  /* the kernel's socket cookie */
	ecalls_u32 round_trip_us; /* smoothed; 0: none was measured yet */
	ecalls_u32 retransmits;	  /* segments that the connection has sent again so far */
	ecalls_u32 window;	  /* segments that may be in flight (congestion window) */
	ecalls_u16 local_port;
	ecalls_u16 remote_port;
	ecalls_u8 local_ip[16]; /* IPv6; of IPv4 the mapped form ::ffff:a.b.c.d */
	ecalls_u8 remote_ip[16];
	ecalls_u32 state;  /* the kernel's number: 1 established, 2 SYN sent, ..., 10 listening */
	ecalls_u32 former; /* STATE: the state before; else the same as `state` */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_net_event) == 64, "net event");

/* disk: kinds are the operations. A block device completed a request, in the name of the process
 * that made it. Parameter: the smallest latency to report. */
#define ECALLS_DISK_READ 0u
#define ECALLS_DISK_WRITE 1u
#define ECALLS_DISK_FLUSH 2u
#define ECALLS_DISK_DISCARD 3u
#define ECALLS_DISK_OTHER 4u
struct ecalls_disk_event {
	ecalls_u64 latency_ns; /* from when the request was made until it was completed */
	ecalls_u64 device_ns;  /* of that, the time after it was given to the device */
	ecalls_u64 sector;     /* first sector, of 512 bytes */
	ecalls_u32 bytes;
	ecalls_u32 status; /* 0: done; else the kernel's number of a failure (blk_status_t) */
	ecalls_u32 major;  /* number of the disk, not of a partition */
	ecalls_u32 minor;
	char disk[16]; /* its name */
	char comm[16]; /* name of the thread that made the request */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_disk_event) == 72, "disk event");

/* memory: kinds. RECLAIM and VICTIM are in the name of the process, PRESSURE in that of the control
 * group's owner. Parameter: the smallest duration to report. */
#define ECALLS_MEMORY_RECLAIM 0u  /* direct reclaim: a process had to free memory itself */
#define ECALLS_MEMORY_VICTIM 1u	  /* a process is killed by the OOM killer */
#define ECALLS_MEMORY_PRESSURE 2u /* threads of a control group waited for memory */
struct ecalls_memory_event {
	ecalls_u64 duration_ns; /* RECLAIM: how long it took; PRESSURE: how long some waited */
	ecalls_u64 full_ns;	/* PRESSURE: how long all waited */
	ecalls_u64 interval_ns; /* PRESSURE: the interval of the measurement */
	ecalls_u64 pages;	/* RECLAIM: pages freed; VICTIM: about its resident pages */
	ecalls_u64 cgroup;  /* control group (version 2), as cpu's; 1: the root, or the machine */
	ecalls_u32 limited; /* RECLAIM: 1: for the limit of a control group; 0: the machine's */
	ecalls_u32 pid;	    /* RECLAIM, VICTIM: the process */
	ecalls_s32 score;   /* RECLAIM, VICTIM: its oom_score_adj */
	ecalls_u32 pad;
	char comm[16]; /* RECLAIM, VICTIM: name of the thread */
	char name[48]; /* of the control group's directory */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_memory_event) == 120, "memory event");

/* cpu: kinds. Measured of each control group (version 2), in the name of its owner. Parameter: the
 * period. */
#define ECALLS_CPU_UTILIZATION 0u /* it used CPU time in the period */
#define ECALLS_CPU_PRESSURE 1u	  /* some of its threads waited for a CPU */
struct ecalls_cpu_event {
	ecalls_u64 cgroup; /* number of its directory (inode); 1: the root, that is, the machine */
	ecalls_u64 parent; /* the group that it is in; 0: none */
	ecalls_u64 period_ns;
	ecalls_u64 usage_ns;	  /* CPU time that it and the groups in it used in the period */
	ecalls_u32 utilization;	  /* the same in thousandths of one CPU */
	ecalls_u32 pressure_some; /* thousandths of the time in which some of its threads waited */
	ecalls_u32 pressure_full; /* in which all of them did */
	ecalls_u32 pad;
	char name[72]; /* of its directory */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_cpu_event) == 120, "cpu event");

/* The core's identity, in the map `ecalls_host`: how a second program finds and joins a running
 * core. Written by the program that loads the core; later the ids of what is loaded or attached
 * when it is first needed are added, by whoever loads or attaches it. */
#define ECALLS_HOST_IDS 128u
#define ECALLS_HOST_DAEMON 0x1u /* a daemon hosts it: programs go through that, and do not join */
struct ecalls_host {
	ecalls_u32 version;  /* ECALLS_ABI_VERSION */
	ecalls_u32 pid;	     /* process that loaded the core */
	ecalls_u32 cpus;     /* CPUs the queues were made for */
	ecalls_u32 ready;    /* 0: still being loaded, or its loader died; else a checksum of the
			       loader's tables of maps and programs: other builds must not join */
	ecalls_u64 start_ns; /* when it was loaded */
	ecalls_u32 flags;    /* ECALLS_HOST_* */
	ecalls_u32 pad;
	char mechanism[ECALLS_NAME_MAX];     /* the fast call: prctl, security, setsockopt or run */
	ecalls_u32 map_ids[ECALLS_HOST_IDS]; /* in the order of the loader's table of maps */
	ecalls_u32 prog_ids[ECALLS_HOST_IDS]; /* in the order of the loader's table of programs */
	ecalls_u32
		link_ids[ECALLS_HOST_IDS]; /* of the same programs, where attached; changes later */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_host) == 1600, "host");

#endif
