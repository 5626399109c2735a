/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What Rust cannot say: a variable of each thread at a fixed distance from its control block, and a
 * function to which the C library's pthread_exit and cancellation unwind the stack.
 */
#include <pthread.h>
#include <stddef.h>

/* The thread as this library knows it; NULL: a kernel thread. In the first libraries of a program
   such a variable is at the same distance from each thread's control block. */
static __thread void *record __attribute__((tls_model("initial-exec")));

/* Not 0: the thread is in the runtime, and may hold a lock of it. */
static __thread int inside __attribute__((tls_model("initial-exec")));

/* Where the stack is while a handler of a signal runs: from, to. Zeros: none does. */
static __thread size_t handler[2] __attribute__((tls_model("initial-exec")));

size_t *ecalls_handler(void) {
	return handler;
}

/* The stack pointer with which a longjmp goes on: the C library has encrypted it. */
size_t ecalls_stack_of(const void *env) {
	size_t stack = ((const size_t *)env)[6];

	__asm__("ror $17, %0\n\txor %%fs:0x30, %0" : "+r"(stack) : : "cc");
	return stack;
}

int ecalls_inside_get(void) {
	return inside;
}

void ecalls_inside_set(int now) {
	inside = now;
}

void *ecalls_record_get(void) {
	return record;
}

void ecalls_record_set(void *now) {
	record = now;
}

static ptrdiff_t distance(void) {
	return (char *)&record - (char *)pthread_self();
}

void *ecalls_record_of(pthread_t thread) {
	return __atomic_load_n((void **)((char *)thread + distance()), __ATOMIC_ACQUIRE);
}

void ecalls_record_set_of(pthread_t thread, void *now) {
	__atomic_store_n((void **)((char *)thread + distance()), now, __ATOMIC_RELEASE);
}

/* Executes start(argument) into *result; 0: it was ended by pthread_exit or cancellation, which
   have unwound its stack to here, as they would in a kernel thread. */
int ecalls_start(void *(*start)(void *), void *argument, void **result) {
	__pthread_unwind_buf_t buffer;

	if (__sigsetjmp_cancel(buffer.__cancel_jmp_buf, 0))
		return 0;
	__pthread_register_cancel(&buffer);
	*result = start(argument);
	__pthread_unregister_cancel(&buffer);
	return 1;
}
