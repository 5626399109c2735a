/*
 * Shows: the adaptive video player of the Cooperative Polling paper (Figure 3) in outline. Frames
 *        arrive, are decoded piece by piece as best-effort events, the important ones first, and
 *        shown by a timer at their time; those that are not ready by then are dropped by another
 *        timer. Decoder and screen are left out: a loop that computes, and nothing.
 * Needs: nothing. With GROUP (a number, 0: none) it polls cooperatively, which needs root or the
 *        daemon, and is answered while `ecalls sched start` runs.
 * Run:   cc examples/frames.c $(pkg-config --cflags --libs ecalls) -o frames
 *        ./frames [SECONDS [FPS [PIECES [GROUP]]]]
 * Expect: the frame rate, and how late timers were. With more pieces per frame than the CPU can
 *        compute in time (try 3000) the frame rate falls, and the frames that are shown are on
 *        time.
 */
#include <ecalls.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define STEPS 20000 /* of one piece: some 20 us, so that a timer never waits longer */
#define AHEAD 8	    /* how long before its time a frame arrives, in frames */
#define GROUP 12    /* every so many frames one is important: others build upon it */
#define SECOND 1000000000ull

static struct {
	uint64_t start_ns;
	uint64_t period_ns;
	uint64_t frames;
	uint64_t arrived;
	uint64_t shown;
	uint64_t dropped;
	uint32_t pieces;
} player;

/* A frame on its way. */
struct frame {
	uint64_t number;
	uint64_t decode; /* events */
	uint64_t expiry;
	uint32_t left; /* pieces to decode */
};

static void check(int code) {
	if (code >= 0)
		return;
	fprintf(stderr, "frames: %s\n", ecalls_last_error());
	exit(1);
}

static uint64_t now_ns(void) {
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

/* When a frame is to be shown. */
static uint64_t show_ns(uint64_t number) {
	return player.start_ns + (number + AHEAD) * player.period_ns;
}

/* What decides which frame is decoded first: its number. An important one goes before the others of
 * its group and of the group before. */
static uint64_t virtual_time(uint64_t number) {
	return number % GROUP ? number + GROUP : number;
}

static void submit(ecalls_loop_t *events, uint32_t type, ecalls_loop_callback_t callback,
		   struct frame *frame, uint64_t *number) {
	struct ecalls_loop_event event = {.size = sizeof event,
					  .type = type,
					  .callback = callback,
					  .context = frame,
					  .release_ns = show_ns(frame->number),
					  .user_virtual_time = virtual_time(frame->number)};

	check(ecalls_loop_submit(events, &event, number));
}

static void done(ecalls_loop_t *events, struct frame *frame, uint64_t *count) {
	++*count;
	free(frame);
	if (player.shown + player.dropped == player.frames)
		check(ecalls_loop_stop(events));
}

/* A frame is decoded, and its time has come. */
static void show(ecalls_loop_t *events, uint64_t event, void *frame) {
	(void)event;
	done(events, frame, &player.shown);
}

/* Its time has come, and it is not decoded. */
static void give_up(ecalls_loop_t *events, uint64_t event, void *context) {
	struct frame *frame = context;

	(void)event;
	check(ecalls_loop_cancel(events, frame->decode));
	done(events, frame, &player.dropped);
}

/* Decodes a piece. */
static void compute(void) {
	volatile uint64_t result;
	uint64_t state = 1;

	for (int step = 0; step < STEPS; step++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
	}
	result = state;
	(void)result;
}

static void decode(ecalls_loop_t *events, uint64_t event, void *context) {
	struct frame *frame = context;

	compute();
	if (--frame->left) {
		check(ecalls_loop_resubmit(events, event, ECALLS_LOOP_BEST_EFFORT,
					   virtual_time(frame->number)));
		return;
	}
	/* The paper's player does so before the first piece: then a frame that was begun is shown,
	 * if late. Here a frame is on time or not shown. */
	check(ecalls_loop_cancel(events, frame->expiry));
	submit(events, ECALLS_LOOP_TIMER, show, frame, NULL);
}

/* A frame has arrived: decode it when there is time, and give it up at its time. */
static void receive(ecalls_loop_t *events, uint64_t event, void *context) {
	struct frame *frame = calloc(1, sizeof *frame);

	(void)context;
	if (!frame)
		exit(1);
	frame->number = player.arrived++;
	frame->left = player.pieces;
	submit(events, ECALLS_LOOP_BEST_EFFORT, decode, frame, &frame->decode);
	submit(events, ECALLS_LOOP_TIMER, give_up, frame, &frame->expiry);
	if (player.arrived < player.frames)
		check(ecalls_loop_resubmit(events, event, ECALLS_LOOP_TIMER,
					   player.start_ns + player.arrived * player.period_ns));
}

/* The argument at `at`, or what is usual. */
static uint32_t argument(int count, char **words, int at, uint32_t usual) {
	unsigned long given = at < count ? strtoul(words[at], NULL, 10) : 0;

	return given && given <= UINT32_MAX ? (uint32_t)given : usual;
}

/* The loop of this thread, which polls by a slot if a group is named. */
static ecalls_loop_t *open_loop(const char *group) {
	ecalls_channel_t *channel;
	ecalls_loop_t *events;
	ecalls_t *ecalls;

	if (!group) {
		check(ecalls_loop_open(&events));
		return events;
	}
	check(ecalls_open(&ecalls));
	check(ecalls_channel_open(ecalls, NULL, &channel));
	check(ecalls_loop_open_slot(channel, 0, (uint32_t)strtoul(group, NULL, 10), &events));
	return events;
}

int main(int count, char **words) {
	uint32_t seconds = argument(count, words, 1, 2), fps = argument(count, words, 2, 30);
	ecalls_loop_t *events = open_loop(count > 4 ? words[4] : getenv("ECALLS_GROUP"));
	struct ecalls_loop_tardiness late;
	struct ecalls_loop_event event = {
		.size = sizeof event, .type = ECALLS_LOOP_TIMER, .callback = receive};
	double took;

	player.pieces = argument(count, words, 3, 200);
	player.start_ns = now_ns();
	player.period_ns = SECOND / fps;
	player.frames = (uint64_t)seconds * fps;
	event.release_ns = player.start_ns;
	check(ecalls_loop_submit(events, &event, NULL));
	check(ecalls_loop_run(events));
	took = (double)(now_ns() - player.start_ns) / SECOND;
	printf("timing: %s\n", ecalls_loop_timing(events) ? "cooperative" : "plain");
	printf("frames: %llu shown, %llu dropped, %.1f per second\n",
	       (unsigned long long)player.shown, (unsigned long long)player.dropped,
	       (double)player.shown / took);
	check(ecalls_loop_tardiness(events, &late));
	printf("timers: %llu, late by p50 %.1f us, p99 %.1f us, max %.1f us\n",
	       (unsigned long long)late.timers, (double)late.p50_ns / 1000,
	       (double)late.p99_ns / 1000, (double)late.max_ns / 1000);
	ecalls_loop_close(events);
	return 0;
}
