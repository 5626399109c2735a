/*
 * Shows: a health check over UDP that the kernel answers. The program only renews the reply, at
 *        each turn of its work; so a client costs it nothing, however often it asks.
 * Needs: root.
 * Run:   cc examples/health.c $(pkg-config --cflags --libs ecalls) -o health && ./health lo 7070
 *        and in another shell: printf 'healthy?' | socat -t1 - udp:127.0.0.1:7070
 * Expect: "turn 5", and a greater number each second. While the program is stopped or hangs, the
 *        kernel still answers, but with the same number; when it has ended, nobody does.
 */
#include <ecalls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check(int code) {
	if (code >= 0)
		return;
	fprintf(stderr, "health: %s\n", ecalls_last_error());
	exit(1);
}

int main(int argc, char **argv) {
	static const char request[] = "healthy?";
	struct ecalls_answer_count counts;
	ecalls_answers_t *answers;

	if (argc != 3) {
		fprintf(stderr, "usage: health INTERFACE PORT\n");
		return 2;
	}
	struct ecalls_answers_plan plan = {.size = sizeof plan,
					   .cells = 1,
					   .interface = argv[1],
					   .port = atoi(argv[2]),
					   .per_second = 10000};
	/* Whether it is the request is compared by the kernel: each may be in the only cell. */
	check(ecalls_answers_start(&plan, "0", &answers));
	for (unsigned int turn = 1;; turn++) {
		char reply[3 * (sizeof request - 1)];
		int bytes = snprintf(reply, sizeof reply, "turn %u\n", turn);

		check(ecalls_answers_put(answers, (const uint8_t *)request, sizeof request - 1,
					 (const uint8_t *)reply, bytes));
		check(ecalls_answers_counts(answers, &counts));
		printf("turn %u: %llu answered\n", turn, (unsigned long long)counts.answered);
		fflush(stdout);
		sleep(1); /* The work. */
	}
}
