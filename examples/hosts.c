/*
 * Shows: a channel among hosts. Once in a second each host tells all others its load, and submits
 *        work to those that are not busy: the filter at the source (OUT) chooses them in the
 *        kernel, by what they told. What other hosts send is read from shared memory.
 * Needs: root on each host, and a network whose hosts are trusted.
 * Run:   cc examples/hosts.c $(pkg-config --cflags --libs ecalls) -o hosts
 *        ./hosts eth0 60 10.0.0.2 10.0.0.3     on 10.0.0.1, and so on each host
 * Expect: "1: told 2 hosts" in the first second; then, for each second and host, its load ("state")
 *        and work from it, with `host=` and its number; those of this host have `pid=`.
 */
#include <ecalls.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* The data of an event, as the channel's format says it. */
struct data {
	uint32_t percent;
	uint32_t turn;
};

enum { STATE, WORK };

static void check(int code) {
	if (code >= 0)
		return;
	fprintf(stderr, "hosts: %s\n", ecalls_last_error());
	exit(1);
}

static int64_t now_us(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000ll + now.tv_nsec / 1000;
}

static uint32_t busy_percent(void) {
	double load = 0;

	return getloadavg(&load, 1) == 1 ? 100 * load / sysconf(_SC_NPROCESSORS_ONLN) : 0;
}

static void say(const ecalls_publisher_t *publisher, unsigned int turn) {
	struct data data = {.percent = busy_percent(), .turn = turn};
	struct ecalls_net_attribute load = {.number = 0, .value = data.percent};
	struct ecalls_net_submission state = {.size = sizeof state,
					      .kind = STATE,
					      .data = &data,
					      .data_size = sizeof data,
					      .attributes = &load,
					      .attribute_count = 1};
	struct ecalls_net_submission work = {
		.size = sizeof work, .kind = WORK, .data = &data, .data_size = sizeof data};
	struct ecalls_net_sent sent;

	check(ecalls_publisher_tell(publisher, &state, &sent));
	printf("%u: told %llu hosts\n", turn, (unsigned long long)sent.sinks);
	check(ecalls_publisher_submit(publisher, &work, NULL));
}

/* Prints what comes within a second. */
static void hear(const ecalls_t *ecalls, ecalls_channel_t *memory) {
	int64_t until_us = now_us() + 1000000, left_us;

	while ((left_us = until_us - now_us()) > 0) {
		struct ecalls_event event;
		char line[256];
		int code = ecalls_channel_recv(memory, left_us, &event);

		if (code == -ETIMEDOUT)
			return;
		check(code);
		check(ecalls_describe(ecalls, &event, line, sizeof line));
		printf("  %s\n", line);
	}
}

int main(int argc, char **argv) {
	static const char *const names[] = {"load"};
	static const char not_busy[] = "for (s in sinks) if (s.load > 80) reject(s);";
	ecalls_t *ecalls;
	ecalls_channel_t *memory;
	ecalls_net_channel_t *hosts;
	ecalls_publisher_t *publisher;
	ecalls_subscription_t *subscription;

	if (argc < 4) {
		fprintf(stderr, "usage: hosts INTERFACE SECONDS ADDRESS...\n");
		return 2;
	}
	struct ecalls_net_channel_options options = {.size = sizeof options,
						     .name = "hosts",
						     .format = "u32 percent; u32 turn",
						     .kinds = "state work",
						     .interface = argv[1]};
	check(ecalls_open(&ecalls));
	check(ecalls_net_channel_open(ecalls, &options, &hosts));
	for (int i = 3; i < argc; i++)
		check(ecalls_net_channel_add_sink(hosts, argv[i]));
	check(ecalls_net_channel_set_out(hosts, not_busy, names, 1));
	check(ecalls_publisher_open(ecalls, "hosts", NULL, 0, &publisher));

	check(ecalls_channel_open(ecalls, NULL, &memory));
	struct ecalls_subscribe_action to_memory = {.kind = ECALLS_ACTION_MEMORY,
						    .channel = memory};
	struct ecalls_subscribe_options actions = {.size = sizeof actions,
						   .actions = &to_memory,
						   .action_size = sizeof to_memory,
						   .action_count = 1};
	check(ecalls_subscribe(ecalls, "hosts", &actions, &subscription));
	for (unsigned int turn = 1; turn <= (unsigned int)atoi(argv[2]); turn++) {
		say(publisher, turn);
		hear(ecalls, memory);
	}
	ecalls_unsubscribe(subscription);
	ecalls_channel_close(memory);
	ecalls_publisher_close(publisher);
	ecalls_net_channel_close(hosts);
	ecalls_close(ecalls);
	return 0;
}
