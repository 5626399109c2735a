/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the programs of this folder check with: CHECK counts in `failures` what is wrong. Each runs
   one of its checks, by name: PROGRAM CHECK [NUMBER]; the exit status is the number of failures. */
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

/* How many threads or rounds a check has. */
static int number;

struct check {
	const char *name;
	void (*run)(void);
};

/* Runs the check that argv names: of a table whose last name is NULL. */
static inline int run_check(const struct check *checks, int argc, char **argv, int usual)
{
	const char *name = argc > 1 ? argv[1] : "";

	number = argc > 2 ? atoi(argv[2]) : usual;
	for (const struct check *check = checks; check->name; check++)
		if (strcmp(name, check->name) == 0) {
			check->run();
			return failures > 99 ? 99 : failures;
		}
	fprintf(stderr, "no check is called \"%s\"\n", name);
	return 100;
}

#endif
