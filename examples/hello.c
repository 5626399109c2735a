/*
 * Shows: a subscription read through shared memory without a system call, sleeping when there is
 *        nothing, and a deferred downcall.
 * Needs: the daemon (ecallsd), or root: then this program hosts the core itself.
 * Run:   cc examples/hello.c $(pkg-config --cflags --libs ecalls) -o hello && ./hello
 * Expect: ten lines, one for each process of this user (root: of anyone) that starts, forks or
 *        ends.
 */
#include <ecalls.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int code) {
	if (code >= 0)
		return;
	fprintf(stderr, "hello: %s\n", ecalls_last_error());
	exit(1);
}

int main(void) {
	ecalls_t *ecalls;
	ecalls_channel_t *channel;
	ecalls_subscription_t *subscription;
	int64_t known;

	check(ecalls_open(&ecalls));
	check(ecalls_channel_open(ecalls, NULL, &channel));
	struct ecalls_subscribe_action memory = {.kind = ECALLS_ACTION_MEMORY, .channel = channel};
	struct ecalls_subscribe_options options = {.size = sizeof options,
						   .actions = &memory,
						   .action_size = sizeof memory,
						   .action_count = 1};
	check(ecalls_subscribe(ecalls, "task", &options, &subscription));
	for (int count = 1; count <= 10; count++) {
		struct ecalls_event event;
		char line[256];

		/* Looks into shared memory, and sleeps only when there is nothing. */
		check(ecalls_channel_recv(channel, -1, &event));
		check(ecalls_describe(ecalls, &event, line, sizeof line));
		printf("%d: %s\n", count, line);
		/* Tells the kernel side how far we are, by a store: no system call. */
		check(ecalls_call_defer(channel, ECALLS_OP_SET, 0, count, 0));
	}
	/* The next fast call handles them all first. */
	check(ecalls_call_fast(channel, ECALLS_OP_GET, 0, 0, 0, &known));
	printf("the kernel side knows of %lld events\n", (long long)known);
	ecalls_unsubscribe(subscription);
	ecalls_channel_close(channel);
	ecalls_close(ecalls);
	return 0;
}
