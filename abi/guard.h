/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a server tells the guard of its port (ECalls-01 §3.4): a page of shared memory, which the
 * kernel side reads for each connection that comes. A server that accepts connections at once has
 * an empty queue in the kernel however far it is behind; the page has the queue within it.
 *
 * The guard of port N listens at the abstract name ECALLS_GUARD_NAME with N in decimal digits
 * appended, SOCK_SEQPACKET, in the network namespace of the port. It sends whoever connects as
 * root, or as the user who opened the listener, one byte with a descriptor of the page, and reads
 * nothing. One server at a time: another one waits. The page is forgotten when the server's end of
 * the connection is closed; that the guard's end is closed tells the server that it is gone.
 *
 * Each word is a store by the server, and a load by the kernel side; they need no order: a decision
 * that sees one new and one old word is as right as one a moment before. What a server tells can do
 * harm to its own port only.
 */
#ifndef ECALLS_GUARD_PAGE_H
#define ECALLS_GUARD_PAGE_H

#include "version.h"

#define ECALLS_GUARD_NAME "ecalls-guard/"
#define ECALLS_GUARD_PAGE_TOLD 1u /* `told`: the other words are the server's */

struct ecalls_guard_page {
	ecalls_u64 told;	/* ECALLS_GUARD_PAGE_TOLD; 0: nothing is told */
	ecalls_u64 numconnects; /* accepted connections whose request waits or is served */
	ecalls_u64 since_ns;	/* CLOCK_MONOTONIC: since when the first of them waits; 0: none */
	ecalls_u64 served;	/* requests that are answered, ever */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_guard_page) == 32, "guard page");

#endif
