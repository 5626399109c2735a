/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lists the machine's maps: id and name of each. The daemon charges a channel's memory until its
 * maps are no longer listed; tests look for what a core has left.
 *
 * Searching the machine's maps from user space would need CAP_SYS_ADMIN, and would open each one,
 * which is harmful while the kernel empties a table of programs (crates/ecalls-kernel/src/kernel/
 * lock.rs); this program only reads their names.
 *
 * A table of programs that no process has open is left out. What uses it is a program, which is
 * found itself; and such a table may stay for ever, if a process joined a core in the moment in
 * which that ended.
 */
#include "kernel.h"

/* The fields of the kernel's type that are read here. */
struct bpf_map {
	u32 id;
	enum bpf_map_type___used map_type;
	char name[16];
	struct {
		s64 counter;
	} usercnt; /* descriptors and pins */
} __attribute__((preserve_access_index));

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__bpf_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
} __attribute__((preserve_access_index));

/* What is written for each map. */
struct map_name {
	u32 id;
	char name[sizeof(((struct bpf_map *)0)->name)];
};

SEC("iter/bpf_map")
int map_list(struct bpf_iter__bpf_map *context) {
	struct bpf_map *map = context->map;
	struct map_name entry;

	if (!map) /* the end */
		return 0;
	if (map->map_type == BPF_MAP_TYPE_PROG_ARRAY && !map->usercnt.counter)
		return 0;
	entry.id = map->id;
	for (u32 at = 0; at < sizeof(entry.name); at++)
		entry.name[at] = map->name[at];
	bpf_seq_write(context->meta->seq, &entry, sizeof(entry));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
