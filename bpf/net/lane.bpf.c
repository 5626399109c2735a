/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The lane: events that go to other hosts and come from them, as frames (abi/wire.h).
 *
 *	remote.h	a kernel handler: an event becomes a frame in the channel's buffer
 *	egress.h	on an interface: a frame goes to each of its sinks
 *	ingress.h	on an interface: a frame becomes an event
 *
 * They are one part of the core, loaded when the first channel is opened.
 */
#include "ingress.h"
#include "egress.h"
#include "remote.h"

char LICENSE[] SEC("license") = "GPL";
