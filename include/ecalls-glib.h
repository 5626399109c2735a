/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * An ECalls event loop within a program whose main loop is GLib's: ecalls_glib_source() makes a
 * GSource of it, to be attached to the main context of the loop's thread. Its timers and sources
 * then run in GLib's loop, between what else runs there; while that sleeps, both do.
 *
 *	GSource *source = ecalls_glib_source(events);
 *	g_source_set_callback(source, on_over, NULL, NULL); // optional: the loop is over
 *	g_source_attach(source, NULL);
 *	g_source_unref(source);
 *
 * Each dispatch is one ecalls_loop_turn(3): it runs what is due, and returns instead of sleeping.
 * The source ends, and calls its callback, when the loop was stopped or can never have anything to
 * do again. The loop outlives the source. Timers that must not wait for GLib's other sources want a
 * source of high priority: g_source_set_priority(source, G_PRIORITY_HIGH).
 *
 * This header is all of it: only programs that include it need GLib.
 */
#ifndef ECALLS_GLIB_H
#define ECALLS_GLIB_H

#include <glib-unix.h>
#include <glib.h>

#include "ecalls.h"

struct ecalls_glib_source {
	GSource source;
	ecalls_loop_t *events;
	gpointer tag;	  /* of the loop's descriptor */
	uint64_t next_ns; /* 0: there is something to run now */
};

static inline gboolean ecalls_glib_prepare(GSource *source, gint *timeout_ms) {
	*timeout_ms = -1; /* the descriptor becomes readable when a timer is due */
	return ((struct ecalls_glib_source *)source)->next_ns == 0;
}

static inline gboolean ecalls_glib_check(GSource *source) {
	struct ecalls_glib_source *own = (struct ecalls_glib_source *)source;

	return own->next_ns == 0 || g_source_query_unix_fd(source, own->tag) != 0;
}

static inline gboolean ecalls_glib_dispatch(GSource *source, GSourceFunc callback, gpointer data) {
	struct ecalls_glib_source *own = (struct ecalls_glib_source *)source;
	int more = ecalls_loop_turn(own->events, &own->next_ns);

	if (more > 0)
		return G_SOURCE_CONTINUE;
	if (more < 0)
		g_warning("ECalls' event loop ends: %s", ecalls_last_error());
	if (callback)
		callback(data);
	return G_SOURCE_REMOVE;
}

/* A new source, or NULL: `events` is no loop of the calling thread (ecalls_last_error(3)). */
static inline GSource *ecalls_glib_source(ecalls_loop_t *events) {
	static GSourceFuncs functions = {ecalls_glib_prepare, ecalls_glib_check,
					 ecalls_glib_dispatch, NULL, NULL, NULL};
	int fd = ecalls_loop_fd(events);
	struct ecalls_glib_source *own;
	GSource *source;

	if (fd < 0)
		return NULL;
	source = g_source_new(&functions, sizeof *own);
	own = (struct ecalls_glib_source *)source;
	own->events = events;
	own->next_ns = 0;
	own->tag = g_source_add_unix_fd(source, fd, G_IO_IN);
	g_source_set_name(source, "ecalls");
	return source;
}

#endif
