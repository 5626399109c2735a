/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lists the channels whose memory is still held, closed ones included: the ids of all maps with the
 * names of segments. The daemon charges memory until its id is no longer listed.
 *
 * Searching the machine's maps from user space would need CAP_SYS_ADMIN, and would open each one;
 * this program only reads their names.
 */
#include "kernel.h"

/* The fields of the kernel's type that are read here. */
struct bpf_map {
	u32 id;
	char name[16];
} __attribute__((preserve_access_index));

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__bpf_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
} __attribute__((preserve_access_index));

/* Names of a segment and of a wake descriptor's buffer
 * (crates/ecalls-kernel/src/core/channel.rs). */
static const char segment[] = "ecalls_segment";
static const char wake[] = "ecalls_wake";

static __always_inline bool is_named(const struct bpf_map *map, const char *name, u32 size) {
	for (u32 at = 0; at < size; at++)
		if (map->name[at] != name[at])
			return false;
	return true;
}

SEC("iter/bpf_map")
int segment_list(struct bpf_iter__bpf_map *context) {
	struct bpf_map *map = context->map;
	u32 id;

	if (!map) /* the end */
		return 0;
	if (!is_named(map, segment, sizeof(segment)) && !is_named(map, wake, sizeof(wake)))
		return 0;
	id = map->id;
	bpf_seq_write(context->meta->seq, &id, sizeof(id));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
