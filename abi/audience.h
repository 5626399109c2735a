/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Audiences: the subscriptions that are offered an event of a built-in service in addition to the
 * service's own list.
 *
 * A subscription with scope OWN sees the events of one user only, so it is not in the list that the
 * dispatcher walks for every event. It is in two audiences instead: that of its receiver's process,
 * for events with that process as target, and that of its owner's user, for all other events. An
 * event is offered to the service's list first, then to the one audience that its target or its
 * user selects; the audiences of other users add no cost.
 *
 * An audience is a chain of rows of the map `audience_rows`, in order of delivery; the map
 * `audiences` holds its first row. The host writes new rows, stores the first one in the map, and
 * reuses the former rows when no program can read them any more; so a chain never changes while a
 * program reads it.
 */
#ifndef ECALLS_AUDIENCE_H
#define ECALLS_AUDIENCE_H

#include "version.h"

#define ECALLS_AUDIENCE_ROWS 8448u /* rows; two for each subscription, and some that are retired */
#define ECALLS_AUDIENCE_MAX 256u   /* subscriptions of one audience: four rows */

/* Which sort of audience. */
#define ECALLS_AUDIENCE_PID 0u /* of events with process `who` as target */
#define ECALLS_AUDIENCE_UID 1u /* of other events, of user `who` */

struct ecalls_audience_key {
	ecalls_u16 service;
	ecalls_u16 sort; /* ECALLS_AUDIENCE_* */
	ecalls_u32 who;
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_audience_key) == 8, "audience key");

/* A row's state; host only. */
#define ECALLS_AUDIENCE_FREE 0u
#define ECALLS_AUDIENCE_USED 1u
#define ECALLS_AUDIENCE_RETIRED 2u /* since retired_ns; a program may still read it */

struct ecalls_audience {
	ecalls_u32 state;	/* ECALLS_AUDIENCE_FREE, ..; host only */
	ecalls_u32 next;	/* next row of the audience; 0: none */
	ecalls_u64 deadline_ns; /* first row: smallest relative deadline of all; 0: none */
	ecalls_u64 retired_ns;	/* host only */
	ecalls_u32 count;	/* subscriptions in this row */
	ecalls_u32 pad;
	ecalls_u32 list[ECALLS_SUBSCRIBERS_MAX]; /* indices, in order of delivery */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_audience) == 288, "audience");

#endif
