/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * execl, execlp and execle, whose arguments are a list of any length, which no function in Rust
 * can receive: cpus.rs has the functions' names, and jumps here. They go on as execv, execvp and
 * execve, which are cpus.rs's, too. Between vfork and exec nothing may be allocated, so the array
 * is on the stack.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

enum how { PATH, SEARCH, ENVIRONMENT };

static int execute(enum how how, const char *file, const char *first, va_list list)
{
	size_t count = 1;
	va_list ahead;

	va_copy(ahead, list);
	for (const char *next = first; next; next = va_arg(ahead, const char *))
		count++;
	va_end(ahead);

	char *argv[count];

	argv[0] = (char *)first;
	for (size_t i = 1; i < count; i++)
		argv[i] = va_arg(list, char *);
	switch (how) {
	case SEARCH:
		return execvp(file, argv);
	case ENVIRONMENT:
		return execve(file, argv, va_arg(list, char **));
	default:
		return execv(file, argv);
	}
}

int ecalls_execl(const char *path, const char *first, ...)
{
	va_list list;

	va_start(list, first);
	int result = execute(PATH, path, first, list);
	va_end(list);
	return result;
}

int ecalls_execlp(const char *file, const char *first, ...)
{
	va_list list;

	va_start(list, first);
	int result = execute(SEARCH, file, first, list);
	va_end(list);
	return result;
}

int ecalls_execle(const char *path, const char *first, ...)
{
	va_list list;

	va_start(list, first);
	int result = execute(ENVIRONMENT, path, first, list);
	va_end(list);
	return result;
}
