/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The protocol between an application and the daemon over the socket ECALLS_SOCKET_PATH
 * (SOCK_SEQPACKET). By it a program without privileges gets the shared memory that abi/channel.h
 * and abi/downcall.h describe. Events and calls never pass through this socket.
 *
 * One packet is one message: struct ecalls_message and, behind it, the body that its kind names.
 * Every kind has one size; there are no lengths and no texts of variable size. Descriptors travel
 * beside a packet (SCM_RIGHTS), in the order given below. A text in E-code, which is longer, is in
 * a file of memory beside the packet: upload.h.
 *
 * The application sends requests; the daemon answers each request once, in order, with the same
 * `serial`: by the kind's answer or by ECALLS_MESSAGE_REFUSED. The first request is HELLO. The
 * kernel identifies the sender by the socket's other end; messages carry no identity.
 *
 * When either side closes the socket, all objects that were created over it end at once. After that
 * the application's memory stays mapped and shows no more events.
 */
#ifndef ECALLS_MESSAGE_H
#define ECALLS_MESSAGE_H

#include "channel.h"
#include "service.h"
#include "subscription.h"
#include "fate.h"
#include "upload.h"

#define ECALLS_SOCKET_PATH "/run/ecalls/socket"
#define ECALLS_MESSAGE_VERSION 1u
#define ECALLS_MESSAGE_MAX 2048u      /* bytes of the largest message */
#define ECALLS_MESSAGE_DESCRIPTORS 4u /* descriptors beside one message at most */

struct ecalls_message {
	ecalls_u32 version; /* ECALLS_MESSAGE_VERSION */
	ecalls_u32 kind;    /* ECALLS_MESSAGE_* */
	ecalls_u32 serial;  /* chosen by the application; the answer has the same */
	ecalls_u32 size;    /* bytes of the whole message, this header included */
};
ECALLS_STATIC_ASSERT(sizeof(struct ecalls_message) == 16, "message header");

/* Requests, and the answer to each: DONE unless said. */
#define ECALLS_MESSAGE_HELLO 1u		/* hello -> WELCOME */
#define ECALLS_MESSAGE_OPEN_CHANNEL 2u	/* open_channel -> DONE (value: id) + up, down, wake */
#define ECALLS_MESSAGE_CLOSE_CHANNEL 3u /* number (id) */
/* With an upload for each action that is a handler in E-code, in the order of the actions; so at
 * most ECALLS_MESSAGE_DESCRIPTORS of them. */
#define ECALLS_MESSAGE_SUBSCRIBE 4u	     /* subscribe -> DONE (value: id) */
#define ECALLS_MESSAGE_UNSUBSCRIBE 5u	     /* number (id) */
#define ECALLS_MESSAGE_REGISTER_SERVICE 6u   /* service_info -> DONE (value: index) */
#define ECALLS_MESSAGE_UNREGISTER_SERVICE 7u /* number (index) */
#define ECALLS_MESSAGE_WATCH_SOCKET 8u	     /* watch_socket, and the socket */
#define ECALLS_MESSAGE_FORGET_SOCKET 9u	     /* number (0), and the socket */
#define ECALLS_MESSAGE_SET_PARAMETER 10u     /* set_parameter */
/* Listing: `number` is the first index to consider; the answer is the first object from there on
 * that the caller may see, and END after the last one. */
#define ECALLS_MESSAGE_LOOK_SERVICE 11u	     /* number -> SERVICE */
#define ECALLS_MESSAGE_FIND_SERVICE 12u	     /* name -> SERVICE, or refused (UNKNOWN) */
#define ECALLS_MESSAGE_LOOK_SUBSCRIPTION 13u /* number -> SUBSCRIPTION */
#define ECALLS_MESSAGE_LOOK_CHANNEL 14u	     /* number -> CHANNEL */
#define ECALLS_MESSAGE_LOOK_QUEUE 15u	     /* number -> QUEUE */
#define ECALLS_MESSAGE_LOOK_USER 16u	     /* number -> USER */
#define ECALLS_MESSAGE_LOOK_FATE 17u	     /* look_fate -> FATE */
/* For root: the core's tables, so that it can load a service's programs itself (ecalls service
 * add). Each answer hands over the map at place `number` of the loader's table. */
#define ECALLS_MESSAGE_TAKE_MAP 18u	   /* number -> DONE + the map, or END */
#define ECALLS_MESSAGE_REPLACE_HANDLER 19u /* replace_handler, and an upload */
/* For a runtime of threads: the page (abi/activation.h) for the caller's activations, until the
 * connection ends, and the program by which the calling thread becomes one: its context is two u32,
 * the answer's value and the activation's number. */
#define ECALLS_MESSAGE_OPEN_ACTIVATIONS 20u /* number (0) -> DONE (value: index) + page, program */
#define ECALLS_MESSAGE_REQUESTS 21u	    /* requests are below this */

/* Answers. */
#define ECALLS_MESSAGE_REFUSED 0x100u /* refused */
#define ECALLS_MESSAGE_DONE 0x101u    /* done */
#define ECALLS_MESSAGE_END 0x102u     /* done (value 0): there is no further one */
#define ECALLS_MESSAGE_WELCOME 0x103u /* welcome; with mechanism run + the generic call's program */
#define ECALLS_MESSAGE_SERVICE 0x104u /* service_view */
#define ECALLS_MESSAGE_SUBSCRIPTION 0x105u /* subscription_view */
#define ECALLS_MESSAGE_CHANNEL 0x106u	   /* channel_view */
#define ECALLS_MESSAGE_QUEUE 0x107u	   /* queue_view */
#define ECALLS_MESSAGE_USER 0x108u	   /* user_view */
#define ECALLS_MESSAGE_FATE 0x109u	   /* fate_view */

struct ecalls_hello {
	ecalls_u32 abi_version; /* ECALLS_ABI_VERSION of the application's library */
	ecalls_u32 pad;
};

struct ecalls_number {
	ecalls_u32 number;
	ecalls_u32 pad;
};

struct ecalls_name {
	char name[ECALLS_NAME_MAX];
};

struct ecalls_open_channel {
	ecalls_u32 layout; /* ECALLS_LAYOUT_* */
	ecalls_u32 capacity;
	ecalls_u32 slot_use; /* ECALLS_SLOT_* */
	ecalls_u32 defer;    /* ECALLS_DEFER_* */
	ecalls_u64 delay_ns; /* with ECALLS_DEFER_DELAY */
	ecalls_u32 width;    /* entries of a slot (abi/event.h), 0 counts as 1; ring: 1 */
	ecalls_u32 pad;
};

#define ECALLS_SUBSCRIBE_COALESCE 0x1u /* what is not read stands for further events */
struct ecalls_subscribe {
	ecalls_u32 service;  /* index */
	ecalls_u32 receiver; /* process that receives; 0: the caller */
	ecalls_u32 kinds;
	ecalls_u32 pid; /* 0, or only events raised in this process */
	ecalls_u64 deadline_ns;
	ecalls_u32 channel; /* the channel that shows the losses; 0: none */
	ecalls_u32 actions;
	ecalls_u32 flags; /* ECALLS_SUBSCRIBE_* */
	ecalls_u32 pad;
	struct ecalls_action action[ECALLS_ACTIONS_MAX];
};

/* Another text for an action that is a handler in E-code. */
struct ecalls_replace_handler {
	ecalls_u32 subscription; /* id */
	ecalls_u32 action;	 /* which */
};

/* As struct ecalls_socket_interest, without what the daemon fills in itself. */
#define ECALLS_WATCH_IF_ABSENT 0x1u /* an existing registration stays as it is */
struct ecalls_watch_socket {
	ecalls_s32
		target; /* the caller's own process, ECALLS_TARGET_ALL or ECALLS_TARGET_WAKE_ONE */
	ecalls_u32 type;
	ecalls_u32 kinds;
	ecalls_u32 inherit;
	ecalls_u64 deadline_ns;
	ecalls_u32 flags; /* ECALLS_WATCH_* */
	ecalls_u32 pad;
};

struct ecalls_set_parameter {
	ecalls_u32 service; /* index */
	ecalls_u32 pad;
	ecalls_u64 value;
};

struct ecalls_look_fate {
	ecalls_u64 event;    /* id of an event; 0: of any */
	ecalls_u64 older_ns; /* only fates before this time; 0: the newest */
};

struct ecalls_done {
	ecalls_u64 value;
};

struct ecalls_welcome {
	ecalls_u32 abi_version;
	ecalls_u32 pid; /* the caller's process, as the kernel numbers it */
	ecalls_u32 uid; /* its user */
	ecalls_u32 cpus;
	ecalls_u32 daemon;		 /* the daemon's process */
	ecalls_u32 services;		 /* indices of services are below this */
	ecalls_u64 start_ns;		 /* when the core was loaded */
	char mechanism[ECALLS_NAME_MAX]; /* of the fast call */
};

/* Reasons for a refusal: the error that the library returns. Texts end with 0. */
#define ECALLS_REFUSED_UNSUPPORTED                                                                 \
	1u /* subject: what the kernel lacks; text: who brings it. With given "refused":
	      subject: what it did not accept; text: why */
#define ECALLS_REFUSED_DENIED 2u  /* subject: what was tried; text: what it needs */
#define ECALLS_REFUSED_LIMIT 3u	  /* subject: which limit; number: its value */
#define ECALLS_REFUSED_UNKNOWN 4u /* subject: kind of thing; given: its name; text: a hint */
#define ECALLS_REFUSED_INVALID 5u /* subject: which argument; given; text: what is right */
#define ECALLS_REFUSED_CLOSED 6u  /* subject: what is gone */
#define ECALLS_REFUSED_VERSION 7u /* number: the daemon's version of the contract */
#define ECALLS_REFUSED_OS 8u	  /* subject: what was done; number: errno */
#define ECALLS_REFUSED_QUOTA 9u	  /* subject: the user's quota; number: its value */
#define ECALLS_REFUSED_ECODE 10u  /* text: what is wrong with a text in E-code */
struct ecalls_refused {
	ecalls_u32 error; /* ECALLS_REFUSED_* */
	ecalls_u32 pad;
	ecalls_u64 number;
	char subject[96];
	char given[64];
	char text[256];
};

#define ECALLS_OWNER_UNTOLD 0xffffffffu /* another user's: only its name is shown */
struct ecalls_service_view {
	ecalls_u32 index;
	ecalls_u32 owner; /* process of an application service; 0: built in; or OWNER_UNTOLD */
	ecalls_u32 subscriptions;
	ecalls_u32 attached; /* 1: its programs are attached */
	ecalls_u64 parameter;
	struct ecalls_service_info info;
	struct ecalls_service_count count; /* sum over CPUs */
	ecalls_u64 skipped;		   /* runs of its programs that the kernel skipped */
};

struct ecalls_subscription_view {
	ecalls_u32 next; /* where to go on looking */
	ecalls_u32 pad;
	struct ecalls_subscription row;
	struct ecalls_subscription_count count; /* sum over CPUs */
};

struct ecalls_channel_view {
	ecalls_u32 next;
	ecalls_u32 pad;
	struct ecalls_channel row;
};

struct ecalls_queue_view {
	ecalls_u32 next;
	ecalls_u32 owner; /* a CPU; cpus: the kernel threads; cpus + 1: signals that wait */
	ecalls_u32 ready;
	ecalls_u32 held;
};

/* A user's current use and limits, and the fates of the events of its subscriptions, ended ones
 * included: offered = delivered + filtered + late + sum(dropped). */
#define ECALLS_QUOTA_CONNECTIONS 0u
#define ECALLS_QUOTA_CHANNELS 1u
#define ECALLS_QUOTA_SUBSCRIPTIONS 2u
#define ECALLS_QUOTA_SERVICES 3u
#define ECALLS_QUOTA_TIMERS 4u
#define ECALLS_QUOTA_BYTES 5u	    /* of shared memory, also memory still held after closing */
#define ECALLS_QUOTA_DESCRIPTORS 6u /* of the daemon, held for it */
#define ECALLS_QUOTA_QUEUED 7u	    /* events that wait in queues */
#define ECALLS_QUOTA_UP 8u	    /* events per second to it; used: refused so far */
#define ECALLS_QUOTA_RAISED 9u	    /* events per second of it; used: refused so far */
#define ECALLS_QUOTA_HANDLER 10u    /* ns per second of its handlers; used: refused so far */
#define ECALLS_QUOTA_REQUESTS 11u   /* requests per second; used: refused so far */
#define ECALLS_QUOTA_EXPIRIES 12u   /* timers per second; used: refused or put off so far */
#define ECALLS_QUOTA_UPLOADS 13u    /* texts in E-code per second; used: refused so far */
#define ECALLS_QUOTA_COMPILE 14u    /* ns per second for those texts; used: refused so far */
#define ECALLS_QUOTAS 15u
struct ecalls_user_view {
	ecalls_u32 next;
	ecalls_u32 uid;
	ecalls_u64 raised; /* events it raised */
	ecalls_u64 used[ECALLS_QUOTAS];
	ecalls_u64 limit[ECALLS_QUOTAS]; /* 0: none */
	struct ecalls_subscription_count count;
};

/* The fate of one event that was not delivered (`ecalls explain`), and the stage that it reached;
 * see abi/fate.h. */
struct ecalls_fate_view {
	ecalls_u64 event; /* its id */
	ecalls_u64 when_ns;
	ecalls_u64 raise_ns;
	ecalls_u64 release_ns;
	ecalls_u64 deadline_ns;
	ecalls_u32 service; /* index */
	ecalls_u32 kind;
	ecalls_u32 subscription; /* id; 0: all of them */
	ecalls_u32 uid;		 /* of the raiser */
	ecalls_u32 pid;
	ecalls_u32 what;	    /* ECALLS_FATE_* */
	ecalls_u32 reason;	    /* with DROPPED: ECALLS_DROP_*; FILTERED_FOR: drop()'s */
	ecalls_u32 stage;	    /* ECALLS_STAGE_*; with CHAIN the action << 8 */
	ecalls_u64 quota;	    /* with ECALLS_DROP_QUOTA: which ECALLS_QUOTA_* */
	char name[ECALLS_NAME_MAX]; /* of the service */
};

#endif
