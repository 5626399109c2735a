/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The programs of this folder as somebody writes them in C for user space: what `ecalls bench
 * ecode` compares the machine code of E-code with. Each takes a memory as E-code's, in which a
 * run's event is; it checks that there is enough of it, sets its output to 0, and leaves its
 * result.
 *
 * native NAME ROUNDS < DATA: writes the ns of one run of ROUNDS, each with the copy of the data.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DATA_BYTES 4096
#define FAULT (-1)
#define OUTSIDE (-2)

struct metric {
	int32_t num_attributes;
	int32_t attribute[8];
	int32_t threshold[8];
};

struct verdict {
	int32_t exceeded[8];
};

struct memory {
	uint32_t size;
	uint32_t pad;
	union {
		unsigned char bytes[DATA_BYTES];
		struct metric resource[16];
		struct {
			uint64_t bytes;
			uint16_t port;
			char comm[16];
		} packet;
		struct {
			int32_t load[16];
			int32_t limit;
		} array;
		struct {
			int32_t load[500];
			int32_t limit;
		} long_array;
		uint32_t number;
	} data;
	int64_t result;
	struct verdict output[16];
	uint64_t events, sum;
};

static int paper(struct memory *m) {
	if (m->size < sizeof(m->data.resource))
		return FAULT;
	memset(m->output, 0, sizeof(m->output));
	for (int i = 0; i < 16; i++) {
		for (int j = 0; j < m->data.resource[i].num_attributes; j++) {
			if (j >= 8)
				return OUTSIDE;
			if (m->data.resource[i].attribute[j] > m->data.resource[i].threshold[j])
				m->output[i].exceeded[j] = 1;
			else
				m->output[i].exceeded[j] = 0;
		}
	}
	m->result = 1;
	return 0;
}

static int filter(struct memory *m) {
	if (m->size < 26)
		return FAULT;
	m->result = m->data.packet.bytes > 1000 &&
		    (m->data.packet.port == 80 || m->data.packet.port == 443) &&
		    !memcmp(m->data.packet.comm, "lighttpd", sizeof("lighttpd"));
	return 0;
}

static int array(struct memory *m) {
	int above = 0;

	if (m->size < sizeof(m->data.array))
		return FAULT;
	for (int i = 0; i < 16; i++)
		if (m->data.array.load[i] > m->data.array.limit)
			above++;
	m->result = above > 8;
	return 0;
}

static int long_array(struct memory *m) {
	int above = 0;

	if (m->size < sizeof(m->data.long_array))
		return FAULT;
	for (int i = 0; i < 500; i++)
		if (m->data.long_array.load[i] > m->data.long_array.limit)
			above++;
	m->result = above > 250;
	return 0;
}

static int counter(struct memory *m) {
	if (m->size < sizeof(m->data.number))
		return FAULT;
	m->sum += m->data.number;
	m->events++;
	m->result = m->events % 10 == 0;
	return 0;
}

static const struct {
	const char *name;
	int (*run)(struct memory *);
} programs[] = {
	{"paper", paper},	    {"filter", filter},	  {"array", array},
	{"long_array", long_array}, {"counter", counter},
};

static double now_ns(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(int argc, char **argv) {
	static struct memory memory;
	static unsigned char data[DATA_BYTES];
	/* The compiler knows neither which program runs nor how much it gets. */
	int (*volatile run)(struct memory *) = NULL;
	volatile size_t size = fread(data, 1, sizeof(data), stdin);
	long rounds = argc == 3 ? atol(argv[2]) : 0;
	double begin;

	for (size_t at = 0; argc == 3 && at < sizeof(programs) / sizeof(*programs); at++)
		if (!strcmp(argv[1], programs[at].name))
			run = programs[at].run;
	if (!run || rounds < 1)
		return 2;
	begin = now_ns();
	for (long round = 0; round < rounds; round++) {
		memcpy(memory.data.bytes, data, size);
		memory.size = size;
		if (run(&memory))
			return 1;
	}
	printf("%.3f\n", (now_ns() - begin) / (double)rounds);
	return 0;
}
