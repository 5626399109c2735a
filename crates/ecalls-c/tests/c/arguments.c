/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Arguments without meaning are refused with a code and a text, nothing is written, and nothing
 * crashes: NULL everywhere, closing NULL, texts of codes. Needs no privileges and no core.
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

#include "check.h"

/* Something to pass where a pointer must not be NULL; it is never looked at. */
static struct ecalls_event event;
static uint64_t word;

static void host_is_checked(void) {
	char text[8] = "as was";

	REFUSED(ecalls_open(NULL), -EINVAL, "the place for ecalls is NULL");
	REFUSED(ecalls_join(NULL), -EINVAL, "the place for ecalls is NULL");
	REFUSED(ecalls_complete(NULL), -EINVAL, "ecalls is NULL");
	REFUSED(ecalls_describe(NULL, &event, text, sizeof text), -EINVAL, "ecalls is NULL");
	REFUSED(ecalls_format(NULL, "task", text, sizeof text), -EINVAL, "ecalls is NULL");
	CHECK(strcmp(text, "as was") == 0);
}

static void channel_is_checked(void) {
	struct ecalls_lost lost;
	ecalls_channel_t *channel = NULL;

	REFUSED(ecalls_channel_open(NULL, NULL, &channel), -EINVAL, "ecalls is NULL");
	CHECK(channel == NULL);
	REFUSED(ecalls_channel_fd(NULL), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_channel_try_recv(NULL, &event), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_channel_recv(NULL, 0, &event), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_channel_prepare_wait(NULL), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_channel_end_wait(NULL), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_channel_take_ready(NULL, 1, &word), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_channel_lost(NULL, &lost), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_channel_late(NULL, &word), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_channel_histogram(NULL, &word), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_call_fast(NULL, ECALLS_OP_NOP, 0, 0, 0, NULL), -EINVAL, "the channel");
	REFUSED(ecalls_call_defer(NULL, ECALLS_OP_NOP, 0, 0, 0), -EINVAL, "the channel");
	REFUSED(ecalls_call_defer_latest(NULL, 0, 0, 0, 0, 0), -EINVAL, "the channel");
	REFUSED(ecalls_call_flush(NULL), -EINVAL, "the channel");
	REFUSED(ecalls_call_pending(NULL, &word), -EINVAL, "the channel");
}

static void channels_among_hosts_are_checked(void) {
	ecalls_net_channel_t *channel = NULL;
	ecalls_publisher_t *publisher = NULL;
	struct ecalls_subscription_count fates;

	REFUSED(ecalls_net_channel_open(NULL, NULL, &channel), -EINVAL, "ecalls is NULL");
	REFUSED(ecalls_net_channel_host(NULL, &word), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_net_channel_add_sink(NULL, "127.0.0.1"), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_net_channel_remove_sink(NULL, "127.0.0.1"), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_net_channel_sinks(NULL), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_net_channel_set_out(NULL, "1", NULL, 0), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_net_channel_told(NULL, 1, &word, NULL), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_publisher_open(NULL, "a", NULL, 0, &publisher), -EINVAL, "ecalls is NULL");
	REFUSED(ecalls_publisher_submit(NULL, NULL, NULL), -EINVAL, "the publisher is NULL");
	REFUSED(ecalls_publisher_tell(NULL, NULL, NULL), -EINVAL, "the publisher is NULL");
	REFUSED(ecalls_publisher_fates(NULL, 0, &fates), -EINVAL, "the publisher is NULL");
	ecalls_net_channel_close(NULL);
	ecalls_publisher_close(NULL);
	CHECK(channel == NULL && publisher == NULL);
}

static void the_rest_is_checked(void) {
	struct ecalls_subscription_count counts;
	uint32_t id;

	REFUSED(ecalls_subscribe(NULL, "task", NULL, NULL), -EINVAL, "ecalls is NULL");
	REFUSED(ecalls_subscription_id(NULL, &id), -EINVAL, "the subscription is NULL");
	REFUSED(ecalls_subscription_counts(NULL, &counts), -EINVAL, "the subscription is NULL");
	REFUSED(ecalls_service_register(NULL, "a", "", "", NULL), -EINVAL, "ecalls is NULL");
	REFUSED(ecalls_service_index(NULL, &id), -EINVAL, "the service is NULL");
	REFUSED(ecalls_service_raise(NULL, NULL, NULL), -EINVAL, "the service is NULL");
	REFUSED(ecalls_raise(NULL, "a", NULL, NULL), -EINVAL, "ecalls is NULL");
	REFUSED(ecalls_timer_after(NULL, 1, NULL), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_timer_every(NULL, 1, NULL), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_timer_at(NULL, 1, 0, NULL), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_timer_move(NULL, 1, 0), -EINVAL, "the timer is NULL");
	REFUSED(ecalls_timer_number(NULL, &id), -EINVAL, "the timer is NULL");
	REFUSED(ecalls_watch_socket(NULL, 0, NULL), -EINVAL, "ecalls is NULL");
	REFUSED(ecalls_forget_socket(NULL, 0), -EINVAL, "ecalls is NULL");
	REFUSED(ecalls_watch_sockets_of(NULL, 1, NULL, NULL), -EINVAL, "ecalls is NULL");
}

static void loop_is_checked(void) {
	struct ecalls_loop_source source = {.size = sizeof source};
	ecalls_loop_t *events = NULL;
	ecalls_loop_remote_t *remote = NULL;
	ecalls_coop_t *poll = NULL;

	REFUSED(ecalls_loop_open(NULL), -EINVAL, "the place for the loop is NULL");
	REFUSED(ecalls_loop_open_slot(NULL, 0, 0, &events), -EINVAL, "the channel is NULL");
	REFUSED(ecalls_loop_watch(NULL, &source, &word), -EINVAL, "the loop is NULL");
	REFUSED(ecalls_loop_unwatch(NULL, 1), -EINVAL, "the loop is NULL");
	REFUSED(ecalls_loop_fd(NULL), -EINVAL, "the loop is NULL");
	REFUSED(ecalls_loop_turn(NULL, &word), -EINVAL, "the loop is NULL");
	REFUSED(ecalls_loop_timing(NULL), -EINVAL, "the loop is NULL");
	REFUSED(ecalls_loop_remote(NULL, &remote), -EINVAL, "the loop is NULL");
	REFUSED(ecalls_loop_remote_submit(NULL, NULL), -EINVAL, "the remote is NULL");
	REFUSED(ecalls_loop_remote_stop(NULL), -EINVAL, "the remote is NULL");
	REFUSED(ecalls_coop_open(NULL, 0, 0, NULL), -EINVAL, "the place for the poll is NULL");
	REFUSED(ecalls_coop_poll(poll, 0, 0, NULL), -EINVAL, "the poll is NULL");
	REFUSED(ecalls_coop_before_sleep(poll, 0, 0), -EINVAL, "the poll is NULL");
	REFUSED(ecalls_coop_after_sleep(poll, NULL), -EINVAL, "the poll is NULL");
}

static void closing_null_does_nothing(void) {
	ecalls_close(NULL);
	ecalls_channel_close(NULL);
	ecalls_unsubscribe(NULL);
	ecalls_service_unregister(NULL);
	ecalls_timer_cancel(NULL);
	ecalls_loop_close(NULL);
	ecalls_loop_remote_close(NULL);
	ecalls_coop_close(NULL);
}

static void codes_have_texts(void) {
	CHECK(strcmp(ecalls_strerror(0), "no error") == 0);
	CHECK(strstr(ecalls_strerror(-EPERM), "root"));
	CHECK(strcmp(ecalls_strerror(-EPERM), ecalls_strerror(EPERM)) == 0);
	CHECK(strstr(ecalls_strerror(-EBADF), "ad file descriptor"));
	CHECK(ecalls_strerror(INT32_MIN)[0] != 0);
}

static volatile sig_atomic_t received_value;

static void on_signal(const struct ecalls_signal *received) {
	received_value = (sig_atomic_t)received->value;
}

static void signals_reach_their_handler(void) {
	union sigval value = {.sival_int = 42};

	REFUSED(ecalls_signal_install(SIGRTMIN, NULL), -EINVAL, "the handler is NULL");
	REFUSED(ecalls_signal_install(SIGUSR1, on_signal), -EINVAL, "the signal is 10");
	REFUSED(ecalls_signal_install(-1, on_signal), -EINVAL, "the signal is -1");
	REFUSED(ecalls_signal_uninstall(99), -EINVAL, "the signal is 99");
	CHECK(ecalls_signal_install(SIGRTMIN + 1, on_signal) == 0);
	CHECK(sigqueue(getpid(), SIGRTMIN + 1, value) == 0);
	CHECK(received_value == 42);
	CHECK(ecalls_signal_uninstall(SIGRTMIN + 1) == 0);
	CHECK(sigqueue(getpid(), SIGRTMIN + 1, value) == 0);
	CHECK(ecalls_signal_keep_order() >= 0);
}

int main(void) {
	CHECK(ecalls_last_error()[0] == 0);
	host_is_checked();
	channel_is_checked();
	channels_among_hosts_are_checked();
	the_rest_is_checked();
	loop_is_checked();
	closing_null_does_nothing();
	codes_have_texts();
	signals_reach_their_handler();
	return check_result();
}
