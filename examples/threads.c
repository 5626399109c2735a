/*
 * Shows: user-level threads that block. One thread for each file reads it in calls that block, and
 *        the processor executes the others meanwhile; a semaphore lets 4 read at a time; a mutex
 *        guards the sum.
 * Needs: nothing. As root, or with the daemon, a runtime sees blocks in other calls, too.
 * Run:   cc examples/threads.c $(pkg-config --cflags --libs ecalls) -o threads
 *        ./threads FILE...
 * Expect: the bytes of all files, and how often a thread gave up its processor.
 */
#include <ecalls.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct ecalls_semaphore readers = {.permits = 4};
static struct ecalls_mutex mutex;
static uint64_t sum;

struct file {
	const char *path;
	uint64_t bytes;
};

/* Blocks: its thread is without a processor. */
static void read_all(void *argument) {
	struct file *file = argument;
	char buffer[4096];
	ssize_t bytes;
	int fd = open(file->path, O_RDONLY | O_CLOEXEC);

	while (fd >= 0 && (bytes = read(fd, buffer, sizeof buffer)) > 0)
		file->bytes += (uint64_t)bytes;
	if (fd >= 0)
		close(fd);
}

static void *count(void *path) {
	struct file file = {.path = path};

	ecalls_semaphore_acquire(&readers);
	ecalls_thread_blocking(read_all, &file);
	ecalls_semaphore_release(&readers);
	ecalls_mutex_lock(&mutex);
	sum += file.bytes;
	ecalls_mutex_unlock(&mutex);
	return NULL;
}

int main(int number, char **arguments) {
	struct ecalls_threads_options options = {.size = sizeof options, .processors = 1};
	struct ecalls_threads_stats stats;
	ecalls_threads_t *runtime;
	ecalls_thread_t **threads = calloc((size_t)number, sizeof *threads);

	if (!threads || ecalls_threads_start(&options, &runtime) < 0) {
		fprintf(stderr, "threads: %s\n", ecalls_last_error());
		return 1;
	}
	for (int i = 1; i < number; i++)
		if (ecalls_thread_create(runtime, count, arguments[i], NULL, &threads[i]) < 0)
			fprintf(stderr, "threads: %s: %s\n", arguments[i], ecalls_last_error());
	for (int i = 1; i < number; i++)
		if (threads[i])
			ecalls_thread_join(threads[i], NULL);
	ecalls_threads_stats(runtime, &stats);
	ecalls_threads_end(runtime);
	free(threads);
	printf("%llu bytes; %llu times without a processor\n", (unsigned long long)sum,
	       (unsigned long long)stats.left);
	return 0;
}
