/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the C tests share: a check that names its line and what the library said, and goes on.
 * A test program ends with check_result(): 0 if all held.
 */
#ifndef ECALLS_CHECK_H
#define ECALLS_CHECK_H

#include <stdio.h>
#include <string.h>

#include "ecalls.h"

static int check_failures;

/* Counts a failure unless `holds`. */
static inline void check_that(int holds, int line, const char *text) {
	if (holds)
		return;
	check_failures++;
	fprintf(stderr, "line %d: %s (last error: %s)\n", line, text, ecalls_last_error());
}

/* Counts a failure unless `code` is the expected one and the last error's text contains `part`. */
static inline void check_refused(int code, int expected, const char *part, int line,
				 const char *text) {
	if (code != expected)
		fprintf(stderr, "line %d: %s is %d, not %d\n", line, text, code, expected);
	check_that(code == expected && strstr(ecalls_last_error(), part), line, text);
}

#define CHECK(condition) check_that(!!(condition), __LINE__, #condition)
#define REFUSED(call, code, part) check_refused(call, code, part, __LINE__, #call)

static inline int check_result(void) {
	if (check_failures)
		fprintf(stderr, "%d checks failed\n", check_failures);
	return check_failures != 0;
}

#endif
