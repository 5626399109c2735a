/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Which sockets may be read, from C: an echo of one byte, the end, and what is refused. Needs root,
 * but no core. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

int main(void) {
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t size = sizeof(address);
	int listener, client, server, fds[4], pipes[2];
	ecalls_socket_ready_t *ready;
	char byte = 'x';

	CHECK(ecalls_socket_ready_open(&ready) == 0);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(listen(listener, 5) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
	CHECK(ecalls_socket_interest_add(ready, listener) == 0);
	CHECK(ecalls_socket_ready_take(ready, 4, fds) == 1 && fds[0] == listener);
	CHECK(ecalls_socket_ready_wait(ready, 0) == -ETIMEDOUT);

	client = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(client, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(ecalls_socket_ready_wait(ready, -1) == 0);
	CHECK(ecalls_socket_ready_take(ready, 4, fds) == 1 && fds[0] == listener);
	server = accept(listener, 0, 0);
	CHECK(server >= 0 && ecalls_socket_interest_add(ready, server) == 0);

	/* Of two hints one is returned at a time. */
	CHECK(ecalls_socket_interest_set(ready, listener, 1) == 0);
	CHECK(ecalls_socket_ready_take(ready, 1, fds) == 1);
	CHECK(ecalls_socket_ready_prepare_wait(ready) == 0);
	CHECK(ecalls_socket_ready_take(ready, 1, fds) == 1);
	CHECK(ecalls_socket_ready_take(ready, 1, fds) == 0);

	/* A wait of one's own. */
	struct pollfd wait = {.fd = ecalls_socket_ready_fd(ready), .events = POLLIN};

	CHECK(ecalls_socket_ready_prepare_wait(ready) == 1);
	CHECK(poll(&wait, 1, 0) == 0);
	CHECK(write(client, &byte, 1) == 1);
	CHECK(poll(&wait, 1, 10000) == 1);
	CHECK(ecalls_socket_ready_end_wait(ready) == 0);
	CHECK(poll(&wait, 1, 0) == 0);
	CHECK(ecalls_socket_ready_take(ready, 4, fds) == 1 && fds[0] == server);
	CHECK(read(server, &byte, 1) == 1);

	CHECK(ecalls_socket_interest_remove(ready, server) == 0);
	close(client);
	CHECK(ecalls_socket_ready_take(ready, 4, fds) == 0);

	CHECK(pipe(pipes) == 0);
	REFUSED(ecalls_socket_interest_add(ready, pipes[0]), -EINVAL, "IPv4 or IPv6");
	REFUSED(ecalls_socket_interest_add(ready, -1), -EBADF, "is not open");
	REFUSED(ecalls_socket_ready_wait(ready, -2), -EINVAL, "-2 us");
	REFUSED(ecalls_socket_ready_take(NULL, 4, fds), -EINVAL, "the map is NULL");
	REFUSED(ecalls_socket_ready_take(ready, 4, NULL), -EINVAL, "descriptors is NULL");
	ecalls_socket_ready_close(ready);
	ecalls_socket_ready_close(NULL);
	return check_result();
}
