/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The header for services that are added while the core runs (`ecalls service add FILE`).
 *
 * A file contains ECALLS_SERVICE(name, format, kinds) once, and programs on tracepoints (tp_btf) or
 * kernel functions (fentry, fexit), each of which fills a struct as the format describes it and
 * calls ecalls_raise(). It is compiled as follows:
 *
 *	clang -target bpf -mcpu=v3 -O2 -g -D__TARGET_ARCH_x86 -I/usr/local/include/ecalls/bpf \
 *		-c NAME.bpf.c -o NAME.bpf.o
 *
 * The file must be compiled with the headers of the running version, which is checked. Its programs
 * are attached when it is added, and detached when the program that added it ends. Each begins with
 * `if (!ecalls_wanted()) return 0;`, because the whole system pays for the hook; without a
 * subscription its cost is this test. An event that interrupts its own program on the same CPU is
 * lost (and counted by the kernel), so programs should be short.
 *
 * Kernel types: kernel.h lists those that the core's own services use; a file may define more, with
 * preserve_access_index. A file that includes this header is GPL-2.0-only.
 */
#ifndef ECALLS_SERVICE_BPF_H
#define ECALLS_SERVICE_BPF_H

#include "event/raise.h"

/* The file's description of its service; `index` is set by the program that adds it, before
 * loading. */
struct ecalls_provided {
	u32 version; /* ECALLS_ABI_VERSION that it was compiled for */
	u32 index;   /* of the service */
	struct ecalls_service_info info;
};

/* `name`: 1 to 31 bytes without blanks; `format`: the fields of the data, "u64 load; char host[8]";
 * `kinds`: names of the kinds 0, 1, ..., separated by blanks. */
#define ECALLS_SERVICE(service_name, service_format, service_kinds)                                \
	const volatile struct ecalls_provided ecalls_provided SEC(".rodata.service") = {           \
		.version = ECALLS_ABI_VERSION,                                                     \
		.info = {.name = service_name, .format = service_format, .kinds = service_kinds},  \
	};                                                                                         \
	char LICENSE[] SEC("license") = "GPL"

extern const volatile struct ecalls_provided ecalls_provided;

/* Whether there is a subscription. */
static __always_inline bool ecalls_wanted(void) {
	return raise_wanted(ecalls_provided.index);
}

static __always_inline u64 ecalls_rest(const void *data, const u32 size) {
	return size > ECALLS_DATA_INLINE ? (u64)(data + ECALLS_DATA_INLINE) : 0;
}

/* Raises an event of the current process with `size` bytes of data, a constant multiple of 8 of at
 * most ECALLS_DATA_MAX; the address must be a multiple of 8, too. More than ECALLS_DATA_INLINE
 * bytes are too many for the stack: they are in a map's value. Returns the number of
 * subscriptions to which it was offered at once, or a negative code (see raise()). */
static __always_inline int ecalls_raise(u32 kind, const void *data, const u32 size) {
	struct raise r = {
		.service = ecalls_provided.index,
		.kind = kind,
		.target = ECALLS_TARGET_ALL,
		.size = size,
		.rest = ecalls_rest(data, size),
	};

	return raise(&r, data, size > ECALLS_DATA_INLINE ? DATA_WORDS : size / 8);
}

/* The same for an event of another process (0: unknown) and its user: users other than root see
 * only events of their own processes. uid_of() returns the user of a process. */
static __always_inline int ecalls_raise_for(u32 kind, const void *data, const u32 size, u32 pid,
					    u32 uid) {
	struct raise r = {
		.service = ecalls_provided.index,
		.kind = kind,
		.target = ECALLS_TARGET_ALL,
		.flags = RAISE_NO_PID,
		.pid = pid,
		.uid = uid,
		.size = size,
		.rest = ecalls_rest(data, size),
	};

	return raise(&r, data, size > ECALLS_DATA_INLINE ? DATA_WORDS : size / 8);
}

#endif
