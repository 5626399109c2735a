/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The right to raise events of a service from outside of the kernel, by a downcall or by a handler
 * in E-code.
 */
#ifndef ECALLS_EVENT_RIGHT_H
#define ECALLS_EVENT_RIGHT_H

#define RAISE_PLAIN 0 /* see raise.h */
#include "raise.h"

/* The service if this process may raise its events: its owner and root may. Refusals are
 * counted. */
static __always_inline struct ecalls_service *service_of(u32 service, u32 pid, u64 start, u32 uid) {
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);
	struct ecalls_service_count *n;

	if (!s || service < ECALLS_SERVICE_USER ||
	    *(volatile u32 *)&s->state != ECALLS_STATE_ACTIVE)
		return 0;
	if (!uid || (s->owner == pid && (!s->owner_start || s->owner_start == start)))
		return s;
	n = count_of_service(service);
	if (n)
		__sync_fetch_and_add(&n->refused, 1);
	return 0;
}

#endif
