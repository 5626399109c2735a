/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a runtime of user-level threads shows of itself to `ecalls threads` and `ecalls sched
 * trace`.
 *
 * The runtime writes it into a file in memory (memfd_create) with the name "ecalls-threads",
 * which it keeps open: whoever may inspect the process, i.e. its owner and root, finds the file in
 * /proc/PID/fd and reads it. The runtime itself acts upon nothing that is in it, so whoever else
 * writes there only falsifies what is shown. For the reader all of it is an allegation.
 *
 * Each word is written by the process, relaxed; a look is of about one moment.
 */
#ifndef ECALLS_RUNTIME_H
#define ECALLS_RUNTIME_H

#include "activation.h"

/* The activation does not run yet, or has ended. */
#define ECALLS_RUNTIME_NONE 0u
/* It has a processor, or its thread has blocked: the kernel knows which. */
#define ECALLS_RUNTIME_RUNS 1u
/* It waits for a processor. */
#define ECALLS_RUNTIME_SPARE 2u

/* The most threads that have a name at a time. */
#define ECALLS_RUNTIME_NAMES_MAX 4096u

/* The turns of each processor that the file has: the latest. */
#define ECALLS_RUNTIME_TURNS 4096u

/* Flag: the kernel side tells of blocks. */
#define ECALLS_RUNTIME_TOLD 0x1u
/* Flag: each thread has thread-local storage of its own. */
#define ECALLS_RUNTIME_STORAGE 0x2u

/* A virtual processor's counts. `told` and `untold` are copies of those in activation.h, made when
 * an activation of the processor starts, comes back or switches. */
struct ecalls_runtime_processor {
	ecalls_u64 switches;  /* a thread began or continued to run */
	ecalls_u64 left;      /* a thread gave it up before a call that might block */
	ecalls_u64 told;      /* the kernel side took it from a thread that blocked */
	ecalls_u64 untold;    /* the kernel side did not */
	ecalls_u64 reclaimed; /* a thread came back and found it free */
	ecalls_u64 restarts;  /* a thread that had waited after it came back was chosen */
	/* Until then, of CLOCK_MONOTONIC, turns are noted; 0: they are not. Written by whoever
	 * wants to read them; the process clears it. */
	ecalls_u64 trace_until_ns;
	ecalls_u64 turns;     /* that were noted */
	ecalls_u64 unblocked; /* a thread came back, found it taken, and waits to be chosen */
	ecalls_u64 pad[7];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_runtime_processor) == 128, "two lines");

struct ecalls_runtime_activation {
	ecalls_u32 tid; /* as the process sees it; 0: none */
	ecalls_u32 state;
	ecalls_u32 processor; /* that it has, waits for, or had when it blocked */
	ecalls_u32 thread;    /* the number of the thread that it executes, or has executed last */
};

/* A thread's name, a place of which is free if its thread is 0. */
struct ecalls_runtime_name {
	ecalls_u64 thread; /* its number, which an activation has modulo 2^32 */
	char name[16];	   /* filled with zeros */
};

struct ecalls_runtime {
	ecalls_u32 version; /* ECALLS_ABI_VERSION */
	ecalls_u32 processors;
	ecalls_u32 activations_max;
	ecalls_u32 flags;
	ecalls_u64 begun;   /* threads that were created, */
	ecalls_u64 ended;   /* and those of them that have ended */
	ecalls_u64 refused; /* activations that were wanted, and that a limit refused */
	ecalls_u64 pad[11];
	struct ecalls_runtime_processor processor[ECALLS_PROCESSORS_MAX];
	struct ecalls_runtime_activation activation[ECALLS_ACTIVATIONS_MAX]; /* by number */
	struct ecalls_runtime_name name[ECALLS_RUNTIME_NAMES_MAX];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_runtime) == 128 + 8192 + 262144 + 98304,
		     "the file's beginning");

/* An activation executes a thread from then on. */
struct ecalls_runtime_turn {
	ecalls_u64 at_ns;  /* CLOCK_MONOTONIC */
	ecalls_u32 tid;	   /* the activation's */
	ecalls_u32 thread; /* as an activation has it; 0: none, it is a spare */
};

/* The rest of the file. Turn n of a processor is in place n modulo their number, and whole once
 * `turns` is above n; whoever reads it must see afterwards that it was not overwritten. */
struct ecalls_runtime_turns {
	struct ecalls_runtime_turn turn[ECALLS_PROCESSORS_MAX][ECALLS_RUNTIME_TURNS];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_runtime_turns) == 4194304, "the file's rest");

#endif
