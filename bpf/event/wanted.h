/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether an event has subscriptions: the first test of every program of a service.
 */
#ifndef ECALLS_WANTED_H
#define ECALLS_WANTED_H

#include "maps.h"

/* Whether the service has any subscription. */
static __always_inline bool service_wanted(const struct ecalls_service *s) {
	return (s->count[s->active & 1] | s->own) != 0;
}

/* The service, if it has a subscription. One test: its program does nothing else without one. */
static __always_inline struct ecalls_service *wanted_service(u32 service) {
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);

	return s && service_wanted(s) ? s : 0;
}

static __always_inline bool raise_wanted(u32 service) {
	return wanted_service(service) != 0;
}

#endif
