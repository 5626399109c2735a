/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The maps that several parts of the core use and the programs of the core's own object do not.
 *
 * A part is loaded when it is first needed, and ends with its last user; what two parts share must
 * outlive both. So deliver.bpf.c, which is loaded with the core, defines these maps too.
 */
#ifndef ECALLS_EVENT_SHARED_H
#define ECALLS_EVENT_SHARED_H

#include "maps.h"

struct service_name {
	char text[ECALLS_NAME_MAX]; /* padded with 0 */
};

/* Index of each service by name. Written by the host. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ECALLS_SERVICES_MAX);
	__type(key, struct service_name);
	__type(value, u32);
} service_names SEC(".maps");

/* A generic call is copied here, because it is too large for a program's stack, and is read
 * twice. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ecalls_generic);
} generic_calls SEC(".maps");

/* A timer of the timer service (service/timer.h). */
struct timer {
	struct bpf_timer timer;
	u64 owner; /* id of the channel it belongs to, 0: free; above 32 bits its user */
	u32 ready; /* 1: the kernel's timer is initialized */
	u32 pad;
	u64 expiry_ns; /* see service/timer.h */
	u64 period_ns; /* 0: one shot */
	u64 count;     /* events raised since it was set */
	u64 overrun;   /* periods that passed without an event */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_TIMERS_MAX);
	__type(key, u32);
	__type(value, struct timer);
} timers SEC(".maps");

#endif
