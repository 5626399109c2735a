/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The channels that are open on this host: what the sending and the receiving side of the lane
 * share (abi/lane.h).
 */
#ifndef ECALLS_NET_LANE_H
#define ECALLS_NET_LANE_H

#include "event/maps.h"
#include "abi/lane.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ECALLS_LANE_CHANNELS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct ecalls_lane_channel);
} lane_channels SEC(".maps");

/* A channel's row, never 0. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ECALLS_LANE_CHANNELS);
	__type(key, u64);
	__type(value, u32);
} lane_ids SEC(".maps");

/* Whether the service still belongs to the program that opened the channel: its index may have been
 * given to another one. */
static __always_inline bool lane_is_open(const struct ecalls_lane_channel *c) {
	u32 service = c->service;
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);

	return s && *(volatile u32 *)&s->state == ECALLS_STATE_ACTIVE && s->owner == c->owner &&
	       s->owner_start == c->owner_start;
}

#endif
