/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The event loop within GLib's: both run, in order, and the source ends with the loop. */
#include "check.h"
#include "ecalls-glib.h"

struct seen {
	char order[32];
	int count;
	int pieces;
	GMainLoop *main;
	ecalls_loop_remote_t *remote;
	uint64_t release_ns;
};

static void note(struct seen *seen, char what) {
	if (seen->count < (int)sizeof(seen->order) - 1)
		seen->order[seen->count++] = what;
}

static void timer(ecalls_loop_t *events, uint64_t event, void *context) {
	struct seen *seen = context;

	(void)events, (void)event;
	CHECK((uint64_t)g_get_monotonic_time() * 1000 + 1000 >= seen->release_ns);
	note(seen, 't');
}

/* Each begins when what is before it has happened: the pieces, a timer of GLib's, and one of the
 * event loop's. */
static gboolean others(gpointer context) {
	struct seen *seen = context;

	note(seen, 'g');
	seen->release_ns = (uint64_t)g_get_monotonic_time() * 1000 + 20000000;
	struct ecalls_loop_event event = {.size = sizeof event,
					  .type = ECALLS_LOOP_TIMER,
					  .callback = timer,
					  .context = seen,
					  .release_ns = seen->release_ns};
	CHECK(ecalls_loop_remote_submit(seen->remote, &event) == 0);
	ecalls_loop_remote_close(seen->remote);
	return G_SOURCE_REMOVE;
}

static void piece(ecalls_loop_t *events, uint64_t event, void *context) {
	struct seen *seen = context;

	note(seen, 'p');
	if (++seen->pieces < 3)
		CHECK(ecalls_loop_resubmit(events, event, ECALLS_LOOP_BEST_EFFORT, 1) == 1);
	else
		g_timeout_add(5, others, seen);
}

static gboolean over(gpointer context) {
	struct seen *seen = context;

	note(seen, 'o');
	g_main_loop_quit(seen->main);
	return G_SOURCE_REMOVE;
}

int main(void) {
	struct seen seen = {.count = 0};
	struct ecalls_loop_event event = {.size = sizeof event,
					  .type = ECALLS_LOOP_BEST_EFFORT,
					  .callback = piece,
					  .context = &seen};
	ecalls_loop_t *events;

	CHECK(ecalls_glib_source(NULL) == NULL);
	CHECK(ecalls_loop_open(&events) == 0);
	CHECK(ecalls_loop_remote(events, &seen.remote) == 0);
	CHECK(ecalls_loop_submit(events, &event, NULL) == 0);
	seen.main = g_main_loop_new(NULL, FALSE);
	GSource *source = ecalls_glib_source(events);
	g_source_set_callback(source, over, &seen, NULL);
	g_source_attach(source, NULL);
	g_source_unref(source);
	g_main_loop_run(seen.main);
	g_main_loop_unref(seen.main);
	CHECK(strcmp(seen.order, "pppgto") == 0);
	ecalls_loop_close(events);
	return check_result();
}
