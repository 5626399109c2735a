/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For authors of services that are added while the core runs (`ecalls service add FILE`).
 *
 * A file says ECALLS_SERVICE(name, format, kinds) once, has programs on tracepoints (tp_btf) or
 * kernel functions (fentry, fexit), each of which fills a struct as the format describes it and
 * calls ecalls_raise(), and is compiled like this:
 *
 *	clang -target bpf -mcpu=v3 -O2 -g -D__TARGET_ARCH_x86 -I/usr/local/include/ecalls/bpf \
 *		-c NAME.bpf.c -o NAME.bpf.o
 *
 * The file must be compiled with the headers of the version that runs; that is checked. Its
 * programs are attached when it is added, and detached when the program that added it ends. So each
 * begins with `if (!ecalls_wanted()) return 0;`: everyone's system pays for the hook, and all that
 * is left then is one test. An event that interrupts its own program on the same CPU is lost (and
 * counted by the kernel): keep programs short.
 *
 * Kernel types: kernel.h lists what the core's own services use; a file may define more, with
 * preserve_access_index. What includes this header is GPL-2.0-only.
 */
#ifndef ECALLS_SERVICE_BPF_H
#define ECALLS_SERVICE_BPF_H

#include "event/raise.h"

/* What the file says of itself, and what the one who adds it fills in: `index`, before loading. */
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

/* Whether anybody is subscribed. */
static __always_inline bool ecalls_wanted(void) {
	return raise_wanted(ecalls_provided.index);
}

/* Raises an event in the name of the current process: `size` bytes of data, a constant multiple of
 * 8, at most ECALLS_DATA_MAX, at an address that is a multiple of 8 too. The number of
 * subscriptions that it was offered to at once, or negative (see raise()). */
static __always_inline int ecalls_raise(u32 kind, const void *data, const u32 size) {
	struct raise r = {
		.service = ecalls_provided.index,
		.kind = kind,
		.target = ECALLS_TARGET_ALL,
		.size = size,
	};

	return raise(&r, data, size / 8);
}

/* The same in the name of another process (0: none that is known) and its user: ordinary users see
 * the events of their own processes only. uid_of() says whose a process is. */
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
	};

	return raise(&r, data, size / 8);
}

#endif
