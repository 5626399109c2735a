/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Datagrams that the kernel answers, from C: a service without a socket that has one reply, what
 * changes and ends it, and what is refused. Needs root, but no core. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "check.h"

static int client;

/* The reply to a request of four bytes; empty: there is none. */
static const char *ask(const char *request) {
	static char reply[64];
	ssize_t bytes;

	CHECK(send(client, request, 4, 0) == 4 || errno == ECONNREFUSED);
	bytes = recv(client, reply, sizeof(reply) - 1, 0);
	reply[bytes > 0 ? bytes : 0] = 0;
	return reply;
}

static const uint8_t *bytes(const char *text) {
	return (const uint8_t *)text;
}

int main(void) {
	struct ecalls_answers_plan plan = {
		.size = sizeof(plan), .cells = 2, .interface = "lo", .per_second = 1000000};
	struct sockaddr_in address = {.sin_family = AF_INET};
	struct timeval patience = {.tv_usec = 300000};
	socklen_t size = sizeof(address);
	struct ecalls_answer_count counts;
	ecalls_answers_t *answers = NULL;
	int taken;

	/* A port of our own, whose socket does not answer. */
	taken = socket(AF_INET, SOCK_DGRAM, 0);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(bind(taken, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(getsockname(taken, (struct sockaddr *)&address, &size) == 0);
	plan.port = ntohs(address.sin_port);
	client = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0);
	CHECK(connect(client, (struct sockaddr *)&address, sizeof(address)) == 0);

	REFUSED(ecalls_answers_start(NULL, "0", &answers), -EINVAL, "the plan is NULL");
	REFUSED(ecalls_answers_start(&plan, NULL, &answers), -EINVAL, "the code is NULL");
	REFUSED(ecalls_answers_start(&plan, "0", NULL), -EINVAL, "the answers is NULL");
	REFUSED(ecalls_answers_start(&plan, "nothing", &answers), -EINVAL, "nothing");
	plan.address = "somewhere";
	REFUSED(ecalls_answers_start(&plan, "0", &answers), -EINVAL, "no address");
	plan.address = "127.0.0.1";
	plan.interface = "none";
	REFUSED(ecalls_answers_start(&plan, "0", &answers), -EINVAL, "interface");
	plan.interface = "lo";
	plan.port += 65536;
	REFUSED(ecalls_answers_start(&plan, "0", &answers), -EINVAL, "port");
	plan.port -= 65536;
	CHECK(answers == NULL);

	CHECK(ecalls_answers_start(&plan, "data[0] == 'p' ? 0 : UP", &answers) == 0);
	CHECK(ecalls_answers_cell(answers, bytes("ping"), 4) == 0);
	CHECK(ecalls_answers_cell(answers, bytes("else"), 4) == -ENOENT);
	CHECK(*ask("ping") == 0);
	CHECK(ecalls_answers_put(answers, bytes("ping"), 4, bytes("healthy"), 7) == 1);
	CHECK(strcmp(ask("ping"), "healthy") == 0);
	CHECK(*ask("pong") == 0);
	CHECK(ecalls_answers_put(answers, bytes("else"), 4, bytes("healthy"), 7) == 0);
	CHECK(ecalls_answers_put(answers, bytes("ping"), 4, bytes("too many bytes"), 14) == 0);
	CHECK(ecalls_answers_remove(answers, bytes("ping"), 4) == 0);
	CHECK(ecalls_answers_fill(answers, 0, bytes("any"), 3) == 1);
	CHECK(strcmp(ask("pong"), "any") == 0);
	CHECK(ecalls_answers_fill(answers, 2, bytes("any"), 3) == 0);
	CHECK(ecalls_answers_fill(answers, 0, NULL, 0) == 1);
	CHECK(*ask("pong") == 0);
	CHECK(ecalls_answers_counts(answers, &counts) == 0);
	CHECK(counts.answered == 2 && counts.other == 1 && counts.up == 0);
	REFUSED(ecalls_answers_put(NULL, NULL, 0, NULL, 0), -EINVAL, "the answers is NULL");
	REFUSED(ecalls_answers_put(answers, NULL, 4, NULL, 0), -EINVAL, "the request is NULL");
	REFUSED(ecalls_answers_counts(answers, NULL), -EINVAL, "the counts is NULL");
	REFUSED(ecalls_answers_borrow(plan.port, &answers), -ENOENT, "ecalls answer hold");
	REFUSED(ecalls_answers_borrow(plan.port, NULL), -EINVAL, "the answers is NULL");
	CHECK(ecalls_answers_have_ended(answers) == 0);
	ecalls_answers_end(answers);
	ecalls_answers_end(NULL);
	CHECK(*ask("pong") == 0);
	return check_result();
}
