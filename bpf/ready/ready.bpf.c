/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Readiness of sockets through shared memory (abi/ready.h): sets a socket's bit in the maps to
 * which it was introduced.
 *
 * An object of its own, which uses nothing of the core, and attached while there is a map. It has
 * three programs:
 *   ready_data   sees data, a connection or the end of a stream arrive. A socket without storage
 *                costs one load.
 *   ready_error  sees errors, also of a reset connection.
 *   ready_call   introduces a socket to a map, or ends that, in the setsockopt of whoever holds the
 *                socket. The kernel has the socket locked.
 *
 * A socket has seats for a few maps: threads that share a listener have a map each, of which one is
 * told of a connection, if possible one whose thread sleeps. For all else each is told.
 *
 * A map's row has a key, which is known to the owner only. A seat is valid if it has its row's key,
 * so a map that has ended is told nothing. Seats are read without a lock: the key is written last,
 * and whoever sees the key with an old descriptor gives a needless hint.
 */
#include "kernel.h"
#include "abi/channel.h"
#include "abi/downcall.h"
#include "lib/ready.h"

#define ROWS ECALLS_CHANNELS_MAX
#define FAMILY_ERROR 97 /* EAFNOSUPPORT */
#define NO_SEAT 28	/* ENOSPC */

struct ready_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct ecalls_readiness));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, ROWS);
	__type(key, u32);
	__array(values, struct ready_map);
} ready_maps SEC(".maps");

/* Buffers that serve only as descriptors to sleep on. */
struct ready_wake {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, ECALLS_WAKE_BYTES);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, ROWS);
	__type(key, u32);
	__array(values, struct ready_wake);
} ready_wakes SEC(".maps");

/* Keys of the maps; 0: there is none. Written by the host. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ROWS);
	__type(key, u32);
	__type(value, u64);
} ready_keys SEC(".maps");

struct seat {
	u64 key; /* 0: free */
	u32 row;
	u32 descriptor;
};

struct seats {
	struct seat seat[ECALLS_READY_SEATS];
	u32 used; /* seats beyond are free */
	u32 turn; /* of a listener: the seat that is told next */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct seats);
} ready_seats SEC(".maps");

static __always_inline struct ecalls_readiness *map_of(const struct seat *seat, u32 *row) {
	u64 key = *(volatile u64 *)&seat->key;
	u32 zero = 0;
	u64 *valid;
	void *map;

	*row = seat->row;
	valid = bpf_map_lookup_elem(&ready_keys, row);
	if (!key || !valid || *(volatile u64 *)valid != key)
		return 0;
	map = bpf_map_lookup_elem(&ready_maps, row);
	return map ? bpf_map_lookup_elem(map, &zero) : 0;
}

static __noinline int wake(u32 row, struct ecalls_readiness *map) {
	void *buffer = bpf_map_lookup_elem(&ready_wakes, &row);
	u64 token = 1;

	if (!map || !buffer)
		return 0;
	/* If it is full of wake-ups that were not cleared, it is readable; or the kernel could not
	 * take its lock in time: then the next hint wakes. */
	if (bpf_ringbuf_output(buffer, &token, sizeof(token), BPF_RB_FORCE_WAKEUP))
		*(volatile u64 *)&map->sleeping = 1;
	else
		map->wakes++;
	return 0;
}

static __always_inline void tell(const struct seat *seat) {
	struct ecalls_readiness *map;
	u32 row;

	map = map_of(seat, &row);
	if (map && ready_hint(map, seat->descriptor))
		wake(row, map);
}

/* The seat that is told of a connection: one whose thread sleeps, else the next in turn. */
static __always_inline u32 choose(struct seats *seats) {
	u32 turn = seats->turn++, chosen = ECALLS_READY_SEATS, row;

	for (u32 i = 0; i < ECALLS_READY_SEATS; i++) {
		u32 at = (turn + i) % ECALLS_READY_SEATS;
		struct ecalls_readiness *map = map_of(&seats->seat[at], &row);

		if (!map)
			continue;
		if (*(volatile u64 *)&map->sleeping)
			return at;
		if (chosen == ECALLS_READY_SEATS)
			chosen = at;
	}
	return chosen;
}

static __noinline int tell_further(struct seats *seats, u32 listens) {
	if (!seats)
		return 0;
	if (listens) {
		u32 at = choose(seats);

		if (at < ECALLS_READY_SEATS)
			tell(&seats->seat[at]);
		return 0;
	}
	for (u32 i = 0; i < ECALLS_READY_SEATS; i++)
		tell(&seats->seat[i]);
	return 0;
}

static __always_inline void may_be_ready(struct sock *sk) {
	struct seats *seats;

	if (!sk->sk_bpf_storage)
		return;
	seats = bpf_sk_storage_get(&ready_seats, sk, 0, 0);
	if (!seats)
		return;
	if (*(volatile u32 *)&seats->used <= 1)
		tell(&seats->seat[0]);
	else
		tell_further(seats, sk->__sk_common.skc_state == TCP_LISTEN);
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(ready_data, struct sock *sk) {
	may_be_ready(sk);
	return 0;
}

SEC("tp_btf/inet_sk_error_report")
int BPF_PROG(ready_error, struct sock *sk) {
	may_be_ready(sk);
	return 0;
}

/* From the kernel's user API (linux/bpf.h): not relocated, the kernel translates each access. */
struct bpf_sock {
	u32 bound_dev_if;
	u32 family;
};
struct bpf_sockopt {
	struct bpf_sock *sk;
	u64 optval;
	u64 optval_end;
	s32 level;
	s32 optname;
	s32 optlen;
	s32 retval;
};

static __always_inline int take_seat(struct seats *seats, const struct ecalls_ready_call *call) {
	u32 free = ECALLS_READY_SEATS;

	for (u32 i = 0; i < ECALLS_READY_SEATS; i++) {
		struct seat *seat = &seats->seat[i];
		u32 row = seat->row;
		u64 *valid = bpf_map_lookup_elem(&ready_keys, &row);

		if (seat->key == call->key) {
			seat->descriptor = call->number;
			return 0;
		}
		if (free == ECALLS_READY_SEATS && (!seat->key || !valid || *valid != seat->key))
			free = i;
	}
	if (free >= ECALLS_READY_SEATS)
		return -NO_SEAT;
	*(volatile u64 *)&seats->seat[free].key = 0;
	*(volatile u32 *)&seats->seat[free].row = call->row;
	*(volatile u32 *)&seats->seat[free].descriptor = call->number;
	__sync_lock_test_and_set(&seats->seat[free].key, call->key);
	if (seats->used <= free)
		*(volatile u32 *)&seats->used = free + 1;
	return 0;
}

static __always_inline int call_of(struct bpf_sock *sk, const struct ecalls_ready_call *call) {
	bool removes = call->number == ECALLS_READY_REMOVE;
	struct seats *seats;

	if (!removes && call->number >= ECALLS_READY_WORDS * 64)
		return -EINVAL;
	/* The end of a local socket is in no tracepoint. */
	if (sk->family != AF_INET && sk->family != AF_INET6)
		return -FAMILY_ERROR;
	seats = bpf_sk_storage_get(&ready_seats, sk, 0,
				   removes ? 0 : BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!seats)
		return removes ? 0 : -ENOMEM;
	if (!removes)
		return take_seat(seats, call);
	for (u32 i = 0; i < ECALLS_READY_SEATS; i++)
		if (seats->seat[i].key == call->key)
			*(volatile u64 *)&seats->seat[i].key = 0;
	return 0;
}

SEC("cgroup/setsockopt")
int ready_call(struct bpf_sockopt *ctx) {
	const struct ecalls_ready_call *given = (void *)(long)ctx->optval;
	struct ecalls_ready_call call;
	struct bpf_sock *sk;
	int result;
	u64 *key;
	u32 row;

	if (ctx->level != ECALLS_SETSOCKOPT || ctx->optname != ECALLS_SETSOCKOPT_READY)
		return 1;
	sk = ctx->sk;
	if (!sk || (void *)(given + 1) > (void *)(long)ctx->optval_end)
		return 1;
	call = *given;
	row = call.row;
	key = bpf_map_lookup_elem(&ready_keys, &row);
	/* Another process's map, which has a program of its own here; or nobody's: then the kernel
	 * knows no such option. */
	if (!key || !call.key || *(volatile u64 *)key != call.key)
		return 1;
	result = call_of(sk, &call);
	ctx->optlen = -1; /* the kernel's own handler is not called */
	if (result)
		bpf_set_retval(result);
	return 1;
}

char LICENSE[] SEC("license") = "GPL";
