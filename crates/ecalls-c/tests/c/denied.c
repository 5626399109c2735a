/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Without privileges the core cannot be opened, and the code and the text say so. Run as root it
 * gives its privileges up first.
 */
#include <errno.h>
#include <unistd.h>

#include "check.h"

int main(void) {
	ecalls_t *ecalls = NULL;

	if (geteuid() == 0 && (setgid(65534) || setuid(65534))) {
		perror("giving up privileges");
		return 1;
	}
	REFUSED(ecalls_open(&ecalls), -EPERM, "root");
	CHECK(ecalls == NULL);
	return check_result();
}
