/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Replies that the kernel side gives to datagrams (ECalls-05 §3.1.2): what it shares with the
 * process that keeps them ready (bpf/answer/answer.bpf.c).
 *
 * A cell has a reply, and the request to which it is one. A program in E-code names the cell for a
 * datagram; that the cell's request is what the datagram says is compared by the kernel side. So
 * two requests that have one cell are a miss, never a wrong reply.
 *
 * `sequence` is a sequence lock: the process makes it odd, writes the other words, and makes it
 * even. The kernel side copies the cell between two looks; unless both find the same even number
 * other than 0, there is no reply, and the datagram goes up to the socket. All words are accessed
 * whole. Only the process writes.
 *
 * The first bytes of request and reply that are echoed are 0: they come from the datagram.
 *
 * A holder (`ecalls answer hold`) lends its cells to a program without privileges. It listens at
 * the abstract name ECALLS_ANSWER_NAME with the port in decimal digits appended, SOCK_SEQPACKET, in
 * the network namespace of the port. It sends whoever connects as root, or as the user that it was
 * told, one packet, and reads nothing: the struct ecalls_answer_lease, the text in E-code by which
 * the borrower finds the cell of a request, and descriptors of the cells and, for reading only, of
 * the counts. One borrower at a time: another one waits. The cells are emptied when the borrower's
 * end of the connection is closed; that the holder's end is closed tells the borrower that nothing
 * is answered any more. What a borrower writes can do harm to replies of its own port only.
 */
#ifndef ECALLS_ANSWER_H
#define ECALLS_ANSWER_H

#include "version.h"

#define ECALLS_ANSWER_NAME "ecalls-answer/"

#define ECALLS_ANSWER_PREFIX 144u /* bytes of a datagram that E-code sees */
#define ECALLS_ANSWER_REPLY 1200u /* bytes of a reply: it fits any network of IPv6 */
#define ECALLS_ANSWER_ECHO 16u	  /* bytes that are echoed, at most */
#define ECALLS_ANSWER_CELLS 65536u
#define ECALLS_ANSWER_TIMES 3u /* a reply is at most so many times as long as its request */

/* What E-code may return besides a cell; any other number that is none is UP. */
#define ECALLS_ANSWER_UP (-1)
#define ECALLS_ANSWER_DROP (-2)

struct ecalls_answer_cell {
	ecalls_u64 sequence;	  /* odd: it is being written; 0: never */
	ecalls_u32 request_bytes; /* 0: any request */
	ecalls_u32 reply_bytes;	  /* 0: there is none */
	ecalls_u64 sum;		  /* of the reply's 16-bit words as they are in memory, folded */
	ecalls_u8 request[ECALLS_ANSWER_PREFIX];
	ecalls_u8 reply[ECALLS_ANSWER_REPLY];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_answer_cell) == 24 + 144 + 1200, "answer cell");

/* What E-code sees of a datagram: the data of its event. Addresses are in network byte order. */
struct ecalls_answer_input {
	ecalls_u32 length; /* of the datagram; it has as many bytes here, at most the prefix */
	ecalls_u16 family;
	ecalls_u16 remote_port;
	ecalls_u8 remote_ip[16]; /* of IPv4 the first 4 */
	ecalls_u8 data[ECALLS_ANSWER_PREFIX];
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_answer_input) == 168, "data of one event");

/* What became of the packets, for each CPU. Each is counted once. */
struct ecalls_answer_count {
	ecalls_u64 answered;
	ecalls_u64 dropped; /* as E-code said */
	/* All others went on: */
	ecalls_u64 passed;   /* no plain datagram for the port: E-code did not see it */
	ecalls_u64 unproven; /* its checksum is wrong, or nobody has verified it */
	ecalls_u64 failed;   /* E-code ended in a fault */
	ecalls_u64 up;	     /* as E-code said */
	ecalls_u64 empty;    /* the cell has no reply, or there is no such cell */
	ecalls_u64 torn;     /* it was being written */
	ecalls_u64 other;    /* it has the reply to another request */
	ecalls_u64 too_long; /* it has a reply of more than ECALLS_ANSWER_TIMES the request */
	ecalls_u64 limited;  /* more replies in a second than allowed */
	ecalls_u64 unsent;   /* without memory for the reply */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_answer_count) == 12 * 8, "answer count");

/* The begin of what a holder sends; the text follows. */
struct ecalls_answer_lease {
	ecalls_u32 version; /* ECALLS_ABI_VERSION */
	ecalls_u32 cells;
	ecalls_u32 echo_bytes;
	ecalls_u32 text_bytes;
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_answer_lease) == 16, "answer lease");

#endif
