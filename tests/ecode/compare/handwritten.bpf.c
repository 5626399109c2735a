/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The programs of this folder as somebody writes them in C, for clang and libbpf: what `ecalls
 * bench ecode` compares E-code with. They find the event and put the outcome where E-code does,
 * check what the verifier wants checked, and nothing else.
 */
#include "bpf/kernel.h"
#include "abi/ecode.h"
#include "abi/event.h"

#define EVENT_HEADER __builtin_offsetof(struct ecalls_event, data)

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ecalls_frame);
} frames SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__uint(value_size, EVENT_HEADER + 4096);
} events SEC(".maps");

struct event {
	u8 before[80];
	u32 size;
	u32 pad;
};
_Static_assert(sizeof(struct event) == EVENT_HEADER, "data follow the header");

static __always_inline struct ecalls_frame *frame(void) {
	u32 zero = 0;

	return bpf_map_lookup_elem(&frames, &zero);
}

static __always_inline void *event(void) {
	u32 zero = 0;

	return bpf_map_lookup_elem(&events, &zero);
}

struct metric {
	s32 num_attributes;
	s32 attribute[8];
	s32 threshold[8];
};

struct verdict {
	s32 exceeded[8];
};

SEC("raw_tp")
int paper(void *ctx) {
	struct ecalls_frame *f = frame();
	struct {
		struct event head;
		struct metric resource[16];
	} *e = event();
	struct verdict *output;

	if (!f || !e)
		return 0;
	if (e->head.size < sizeof(e->resource)) {
		f->fault = ECALLS_FAULT_INPUT;
		return 0;
	}
	output = (struct verdict *)f->output;
	__builtin_memset(output, 0, 16 * sizeof(*output));
	for (int i = 0; i < 16; i++) {
		for (int j = 0; j < e->resource[i].num_attributes; j++) {
			if (j >= 8) {
				f->fault = ECALLS_FAULT_INDEX;
				return 0;
			}
			if (e->resource[i].attribute[j] > e->resource[i].threshold[j])
				output[i].exceeded[j] = 1;
			else
				output[i].exceeded[j] = 0;
		}
	}
	f->result = 1;
	return 0;
}

SEC("raw_tp")
int filter(void *ctx) {
	struct ecalls_frame *f = frame();
	struct {
		struct event head;
		u64 bytes;
		u16 port;
		char comm[16];
	} *e = event();

	if (!f || !e)
		return 0;
	if (e->head.size < 26) {
		f->fault = ECALLS_FAULT_INPUT;
		return 0;
	}
	f->result = e->bytes > 1000 && (e->port == 80 || e->port == 443) &&
		    !__builtin_memcmp(e->comm, "lighttpd", sizeof("lighttpd"));
	return 0;
}

/* The verifier refuses this one and the next: it walks each of their ways, 65,536 here. */
SEC("raw_tp")
int array(void *ctx) {
	struct ecalls_frame *f = frame();
	struct {
		struct event head;
		s32 load[16];
		s32 limit;
	} *e = event();
	s32 above = 0;

	if (!f || !e)
		return 0;
	if (e->head.size < 68) {
		f->fault = ECALLS_FAULT_INPUT;
		return 0;
	}
	for (int i = 0; i < 16; i++)
		if (e->load[i] > e->limit)
			above++;
	f->result = above > 8;
	return 0;
}

SEC("raw_tp")
int long_array(void *ctx) {
	struct ecalls_frame *f = frame();
	struct {
		struct event head;
		s32 load[500];
		s32 limit;
	} *e = event();
	s32 above = 0;

	if (!f || !e)
		return 0;
	if (e->head.size < 2004) {
		f->fault = ECALLS_FAULT_INPUT;
		return 0;
	}
	for (int i = 0; i < 500; i++)
		if (e->load[i] > e->limit)
			above++;
	f->result = above > 250;
	return 0;
}

u64 seen, sum;

SEC("raw_tp")
int counter(void *ctx) {
	struct ecalls_frame *f = frame();
	struct {
		struct event head;
		u32 bytes;
	} *e = event();

	if (!f || !e)
		return 0;
	if (e->head.size < 4) {
		f->fault = ECALLS_FAULT_INPUT;
		return 0;
	}
	__sync_fetch_and_add(&sum, e->bytes);
	f->result = (__sync_fetch_and_add(&seen, 1) + 1) % 10 == 0;
	return 0;
}
