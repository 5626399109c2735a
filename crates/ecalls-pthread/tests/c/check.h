/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the programs of this folder check with: CHECK counts in `failures` what is wrong. */
#ifndef CHECK_H
#define CHECK_H

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                    \
			failures++;                                                                \
		}                                                                                  \
	} while (0)

static pthread_t create(void *(*start)(void *), void *argument)
{
	pthread_t thread;
	int error = pthread_create(&thread, NULL, start, argument);

	if (error) {
		fprintf(stderr, "pthread_create: %s\n", strerror(error));
		exit(100);
	}
	return thread;
}

static void *join(pthread_t thread)
{
	void *result = NULL;

	CHECK(pthread_join(thread, &result) == 0);
	return result;
}

static inline int kernel_threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	int count = -2;

	while (tasks && readdir(tasks))
		count++;
	if (tasks)
		closedir(tasks);
	return count;
}

#endif
