/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What Rust cannot say: a function that returns twice. A thread that ends before its start routine
 * returns leaves that routine's frames behind, without unwinding them: nobody says whether they
 * can be unwound. So nothing between the two functions may have anything to drop.
 */
#include <setjmp.h>

struct frame {
	jmp_buf base;
	void *volatile result;
};

/* Executes start(argument), and writes to *frame by what it can be left. Its result, or the one
 * with which it was left. */
void *ecalls_start_enter(void *(*start)(void *), void *argument, void **frame) {
	struct frame here;

	*frame = &here;
	if (_setjmp(here.base) == 0)
		here.result = start(argument);
	return here.result;
}

/* Leaves the start routine in which the caller is. */
_Noreturn void ecalls_start_leave(void *frame, void *result) {
	struct frame *base = frame;

	base->result = result;
	_longjmp(base->base, 1);
}
