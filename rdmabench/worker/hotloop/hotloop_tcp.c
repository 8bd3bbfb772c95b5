/*
 * The TCP baseline: the ping-pong and the stream of hotloop.c over connected sockets, with the
 * same definitions, so that a ratio between the two is a ratio of fabrics and not of programs.
 * A stream ends when the receiver has said that it has everything, as an RC completion does.
 */
#include "loop.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>

#define WAIT_MS 100 /* longest sleep between two looks at the deadline */
#define MAX_STREAMS 64

static inline int would_block(void)
{
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* Sleeps until the socket is ready; the deadline is looked at whenever it was not for a while. */
static int wait_ready(struct hl_run *run, const struct hl_lane *lane, short events)
{
	struct pollfd one = { .fd = lane->fd, .events = events };

	if (poll(&one, 1, WAIT_MS) > 0)
		return 0;
	return overdue(run);
}

static int send_all(struct hl_run *run, struct hl_lane *lane)
{
	const char *data = (const char *)(uintptr_t)lane->send_addr;
	size_t left = run->size;

	while (left) {
		const ssize_t n = send(lane->fd, data, left, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0) {
			data += n;
			left -= (size_t)n;
		} else if (unlikely(!would_block())) {
			return fail(run, HL_SOCKET, errno, 0);
		} else if (wait_ready(run, lane, POLLOUT)) {
			return run->where;
		}
	}
	return 0;
}

static int receive_all(struct hl_run *run, struct hl_lane *lane)
{
	char *data = (char *)(uintptr_t)lane->recv_addr;
	size_t left = run->size;

	while (left) {
		const ssize_t n = recv(lane->fd, data, left, MSG_DONTWAIT);

		if (n > 0) {
			data += n;
			left -= (size_t)n;
		} else if (unlikely(n == 0)) {
			return fail(run, HL_PEER_CLOSED, 0, 0);
		} else if (unlikely(!would_block())) {
			return fail(run, HL_SOCKET, errno, 0);
		} else if (wait_ready(run, lane, POLLIN)) {
			return run->where;
		}
	}
	return 0;
}

int hl_tcp_lat(struct hl_run *run, int first)
{
	struct hl_lane *lane = run->lanes;

	run->where = HL_DONE;
	run->first_ns = clock_ns(CLOCK_MONOTONIC_RAW);
	for (uint64_t i = 0; i < run->messages; i++) {
		run->stamps[i] = stamp(run->clock);
		if (!first && receive_all(run, lane))
			return run->where;
		if (send_all(run, lane))
			return run->where;
		if (first && receive_all(run, lane))
			return run->where;
		lane->completed++;
	}
	run->stamps[run->messages] = stamp(run->clock);
	run->last_ns = clock_ns(CLOCK_MONOTONIC_RAW);
	return HL_DONE;
}

/* One step of one stream; `posted` counts bytes here. */
static int push(struct hl_run *run, struct hl_lane *lane, uint64_t total)
{
	const uint64_t offset = lane->posted % run->size;
	const char *data = (const char *)(uintptr_t)(lane->send_addr + offset);
	const ssize_t n = send(lane->fd, data, run->size - offset, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n > 0)
		lane->posted += (uint64_t)n;
	else if (unlikely(!would_block()))
		return fail(run, HL_SOCKET, errno, (uint32_t)(lane - run->lanes));
	if (lane->posted > total)
		return fail(run, HL_ARGUMENT, 0, (uint32_t)(lane - run->lanes));
	return 0;
}

static int pull(struct hl_run *run, struct hl_lane *lane)
{
	const uint64_t offset = lane->received % run->size;
	char *data = (char *)(uintptr_t)(lane->recv_addr + offset);
	const ssize_t n = recv(lane->fd, data, run->size - offset, MSG_DONTWAIT);

	if (n > 0)
		lane->received += (uint64_t)n;
	else if (unlikely(n == 0))
		return fail(run, HL_PEER_CLOSED, 0, (uint32_t)(lane - run->lanes));
	else if (unlikely(!would_block()))
		return fail(run, HL_SOCKET, errno, (uint32_t)(lane - run->lanes));
	return 0;
}

/* The receiver's one byte: everything of this stream has arrived. */
static int take_receipt(struct hl_run *run, struct hl_lane *lane)
{
	char receipt;
	const ssize_t n = recv(lane->fd, &receipt, 1, MSG_DONTWAIT);

	if (n == 1) {
		lane->completed = run->messages;
		return 0;
	}
	if (unlikely(n == 0))
		return fail(run, HL_PEER_CLOSED, 0, (uint32_t)(lane - run->lanes));
	return would_block() ? 0 : fail(run, HL_SOCKET, errno, (uint32_t)(lane - run->lanes));
}

static int give_receipt(struct hl_run *run, struct hl_lane *lane)
{
	const char receipt = 1;

	while (send(lane->fd, &receipt, 1, MSG_NOSIGNAL) != 1) {
		if (!would_block())
			return fail(run, HL_SOCKET, errno, (uint32_t)(lane - run->lanes));
		if (wait_ready(run, lane, POLLOUT))
			return run->where;
	}
	lane->completed = run->messages;
	return 0;
}

static int step_sender(struct hl_run *run, struct hl_lane *lane, uint64_t total)
{
	if (lane->posted < total)
		return push(run, lane, total);
	return take_receipt(run, lane);
}

static int step_receiver(struct hl_run *run, struct hl_lane *lane, uint64_t total)
{
	if (pull(run, lane))
		return run->where;
	return lane->received == total ? give_receipt(run, lane) : 0;
}

static short wanted(const struct hl_lane *lane, int sends, uint64_t total)
{
	return sends && lane->posted < total ? POLLOUT : POLLIN;
}

static int step_ready(struct hl_run *run, const struct pollfd *fds, int sends, uint64_t total)
{
	for (uint32_t i = 0; i < run->lane_count; i++) {
		struct hl_lane *lane = &run->lanes[i];
		int rc;

		if (!fds[i].revents || lane->completed == run->messages)
			continue;
		rc = sends ? step_sender(run, lane, total) : step_receiver(run, lane, total);
		if (rc)
			return rc;
	}
	return 0;
}

static int stream(struct hl_run *run, int sends)
{
	const uint64_t total = run->messages * run->size;
	struct pollfd fds[MAX_STREAMS];
	uint32_t open;

	if (run->lane_count > MAX_STREAMS)
		return fail(run, HL_ARGUMENT, 0, 0);
	run->where = HL_DONE;
	run->first_ns = clock_ns(CLOCK_MONOTONIC_RAW);
	do {
		open = 0;
		for (uint32_t i = 0; i < run->lane_count; i++) {
			const struct hl_lane *lane = &run->lanes[i];
			const int done = lane->completed == run->messages;

			fds[i].fd = done ? -1 : lane->fd;
			fds[i].events = wanted(lane, sends, total);
			fds[i].revents = 0;
			open += !done;
		}
		if (!open)
			break;
		if (poll(fds, run->lane_count, WAIT_MS) <= 0 && overdue(run))
			return run->where;
		if (step_ready(run, fds, sends, total))
			return run->where;
	} while (1);
	run->last_ns = clock_ns(CLOCK_MONOTONIC_RAW);
	return HL_DONE;
}

int hl_tcp_send_bw(struct hl_run *run)
{
	return stream(run, 1);
}

int hl_tcp_recv_bw(struct hl_run *run)
{
	return stream(run, 0);
}
