/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The disk service: raises an event when a block device has completed a request that took at least
 * as long as the service's parameter (ns). The kind is the operation.
 *
 * A request's time begins when it is created (block_io_start), in the process that reads or writes;
 * for data that the kernel writes back later this is a kernel thread. That process is stored in
 * `disk_requests` until the request is completed, which happens in an interrupt. The event belongs
 * to that process. Requests that the block layer creates itself (flushes) begin when they are
 * issued to the device. A device may complete a request in parts: the last one counts.
 *
 * Requests are identified by their addresses, which the kernel reuses. A request that was merged
 * into another one, or was in progress when the programs were detached, is never completed here;
 * its entry is overwritten by the next request at its address. If there is no room for an entry,
 * the request raises nothing, and the service counts one refused event.
 */
#include "event/raise.h"

#define DISK_WORDS (sizeof(struct ecalls_disk_event) / 8)
#define DISK_REQUESTS 16384u /* requests in progress; memory is allocated when needed */

struct disk_request {
	u64 start_ns;
	u64 issue_ns; /* when it was last issued to the device; 0: not yet */
	u32 bytes;
	u32 pid;
	u32 uid;
	u32 pad;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DISK_REQUESTS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64); /* address of the request */
	__type(value, struct disk_request);
} disk_requests SEC(".maps");

enum req_op {
	REQ_OP_READ = 0,
	REQ_OP_WRITE = 1,
	REQ_OP_FLUSH = 2,
	REQ_OP_DISCARD = 3,
};

#define OPERATION_MASK 0xff

static __always_inline u32 kind_of(const struct request *request) {
	u32 operation = request->cmd_flags & OPERATION_MASK;

	if (operation == bpf_core_enum_value(enum req_op, REQ_OP_READ))
		return ECALLS_DISK_READ;
	if (operation == bpf_core_enum_value(enum req_op, REQ_OP_WRITE))
		return ECALLS_DISK_WRITE;
	if (operation == bpf_core_enum_value(enum req_op, REQ_OP_FLUSH))
		return ECALLS_DISK_FLUSH;
	if (operation == bpf_core_enum_value(enum req_op, REQ_OP_DISCARD))
		return ECALLS_DISK_DISCARD;
	return ECALLS_DISK_OTHER;
}

/* Stores a request that the current process creates. */
static __always_inline void remember(const struct request *request, u64 issue_ns) {
	struct task_struct *task = bpf_get_current_task_btf();
	u32 service = ECALLS_SERVICE_DISK;
	struct ecalls_service_count *count;
	u64 key = (u64)request;
	struct disk_request r = {
		.start_ns = issue_ns ? issue_ns : bpf_ktime_get_ns(),
		.issue_ns = issue_ns,
		.bytes = request->__data_len,
		.pid = task->tgid,
		.uid = uid_of(task),
	};

	bpf_probe_read_kernel(r.comm, sizeof(r.comm), task->comm);
	if (!bpf_map_update_elem(&disk_requests, &key, &r, BPF_ANY))
		return;
	count = count_of_service(service);
	if (count)
		__sync_fetch_and_add(&count->refused, 1);
}

SEC("tp_btf/block_io_start")
int BPF_PROG(disk_start, struct request *request) {
	if (raise_wanted(ECALLS_SERVICE_DISK))
		remember(request, 0);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(disk_issue, struct request *request) {
	u64 key = (u64)request, now_ns;
	struct disk_request *known;

	if (!raise_wanted(ECALLS_SERVICE_DISK))
		return 0;
	now_ns = bpf_ktime_get_ns();
	known = bpf_map_lookup_elem(&disk_requests, &key);
	if (!known) {
		remember(request, now_ns);
		return 0;
	}
	known->issue_ns = now_ns;
	if (request->__data_len > known->bytes)
		known->bytes = request->__data_len; /* other requests were merged into it */
	return 0;
}

static __always_inline void raise_disk(const struct request *request, const struct disk_request *of,
				       u64 now_ns, u32 status) {
	const struct gendisk *disk = request->q->disk;
	union {
		struct ecalls_disk_event event;
		u64 words[DISK_WORDS];
	} data = {};
	struct raise r = {
		.service = ECALLS_SERVICE_DISK,
		.kind = kind_of(request),
		.target = ECALLS_TARGET_ALL,
		.flags = RAISE_NO_PID,
		.pid = of->pid,
		.uid = of->uid,
		.size = sizeof(data.event),
	};

	data.event.latency_ns = now_ns - of->start_ns;
	data.event.device_ns = of->issue_ns ? now_ns - of->issue_ns : 0;
	data.event.sector = request->__sector;
	data.event.bytes = of->bytes;
	data.event.status = status;
	data.event.major = disk->major;
	data.event.minor = disk->first_minor;
	bpf_probe_read_kernel_str(data.event.disk, sizeof(data.event.disk), disk->disk_name);
	__builtin_memcpy(data.event.comm, of->comm, sizeof(of->comm));
	raise(&r, data.words, DISK_WORDS);
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(disk_complete, struct request *request, u32 status, unsigned int bytes) {
	u32 service = ECALLS_SERVICE_DISK;
	struct ecalls_service *s = bpf_map_lookup_elem(&services, &service);
	struct disk_request *known, copy;
	u64 key = (u64)request, now_ns;

	if (!s || !service_wanted(s))
		return 0;
	known = bpf_map_lookup_elem(&disk_requests, &key);
	if (!known || bytes < request->__data_len)
		return 0;
	copy = *known;
	bpf_map_delete_elem(&disk_requests, &key);
	now_ns = bpf_ktime_get_ns();
	if (now_ns - copy.start_ns >= s->parameter)
		raise_disk(request, &copy, now_ns, status & 0xff);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
