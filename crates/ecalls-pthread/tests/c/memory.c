/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program with a malloc of its own, as those with jemalloc: one mutex protects it, so threads
 * wait for a lock in the midst of it. Nothing that waits may come to malloc once more.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define THREADS 32
#define CLASSES 24

/* Free memory of 16 << class bytes; the class is before what malloc() returns. */
struct block {
	alignas(16) struct block *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static alignas(16) char heap[64 << 20];
static size_t used;
static struct block *unused[CLASSES];
static __thread int inside;

void *malloc(size_t bytes)
{
	size_t class = 0;

	while (((size_t)16 << class) < bytes)
		class++;
	/* whoever waits for the mutex must not come here again */
	if (inside++)
		abort();
	pthread_mutex_lock(&mutex);
	struct block *block = unused[class];
	if (block)
		unused[class] = block->next;
	else if (used + 16 + ((size_t)16 << class) <= sizeof heap) {
		block = (struct block *)(heap + used + 16);
		used += 16 + ((size_t)16 << class);
		*(size_t *)((char *)block - 16) = class;
	}
	/* Long enough for the other processor to come. It does not yield: the runtime itself may
	   need memory from here, for a kernel thread. */
	for (volatile int turn = 0; turn < 300; turn++)
		;
	pthread_mutex_unlock(&mutex);
	inside--;
	return block;
}

void free(void *memory)
{
	struct block *block = memory;

	if (!block)
		return;
	size_t class = *(size_t *)((char *)block - 16);
	pthread_mutex_lock(&mutex);
	block->next = unused[class];
	unused[class] = block;
	pthread_mutex_unlock(&mutex);
}

void *calloc(size_t count, size_t bytes)
{
	void *memory = malloc(count * bytes);

	return memory ? memset(memory, 0, count * bytes) : NULL;
}

void *realloc(void *memory, size_t bytes)
{
	void *new = malloc(bytes);

	if (new && memory) {
		size_t before = (size_t)16 << *(size_t *)((char *)memory - 16);
		memcpy(new, memory, before < bytes ? before : bytes);
		free(memory);
	}
	return new;
}

static void *body(void *argument)
{
	intptr_t rounds = (intptr_t)argument;

	for (intptr_t round = 0; round < rounds; round++) {
		size_t bytes = 1 + (size_t)round % 500;
		unsigned char *memory = malloc(bytes);
		memset(memory, (int)round, bytes);
		if (round % 7 == 0)
			sched_yield();
		for (size_t at = 0; at < bytes; at++)
			CHECK(memory[at] == (unsigned char)round);
		free(memory);
	}
	return argument;
}

int main(int count, char **arguments)
{
	pthread_t threads[THREADS];
	intptr_t rounds = count > 1 ? atoi(arguments[1]) : 1000;

	for (int i = 0; i < THREADS; i++)
		threads[i] = create(body, (void *)rounds);
	for (int i = 0; i < THREADS; i++)
		CHECK(join(threads[i]) == (void *)rounds);
	printf("%d threads ended\n", THREADS);
	return kernel_threads() < 0;
}
