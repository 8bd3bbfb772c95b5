/*
 * The timed loops over verbs. One loop per operation and pattern; every option is decided before
 * it starts. Posts and polls are libibverbs' inline calls through the context's own table, so this
 * file needs no libibverbs symbol at link time and runs on whatever provider the QP came from.
 */
#include "loop.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stddef.h>

#define CHECK_EVERY 1024u /* empty polls between two looks at the deadline */
#define POLL_BATCH 16

static __attribute__((cold, noinline)) int fail_wc(struct hl_run *run, const struct ibv_wc *wc)
{
	run->wc_status = (int32_t)wc->status;
	run->vendor_err = wc->vendor_err;
	return fail(run, HL_COMPLETION, 0, (uint32_t)wc->wr_id);
}

static inline struct ibv_qp *qp_of(const struct hl_lane *lane)
{
	return lane->qp;
}

/* A work request of one lane; only flags and the lane change between posts. */
struct request {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
};

static void fill(struct request *req, const struct hl_run *run, const struct hl_lane *lane,
		 enum ibv_wr_opcode opcode)
{
	const int reads = opcode == IBV_WR_RDMA_READ;

	*req = (struct request){
		.wr = { .opcode = opcode, .num_sge = 1, .send_flags = run->send_flags },
		.sge = { .addr = reads ? lane->recv_addr : lane->send_addr,
			 .length = run->size,
			 .lkey = lane->lkey },
	};
	req->wr.sg_list = &req->sge;
	req->wr.wr_id = (uint64_t)(lane - run->lanes);
	req->wr.wr.rdma.remote_addr = lane->remote_addr;
	req->wr.wr.rdma.rkey = lane->rkey;
}

static inline int post(struct hl_run *run, struct hl_lane *lane, struct request *req)
{
	struct ibv_send_wr *bad;
	const int rc = ibv_post_send(qp_of(lane), &req->wr, &bad);

	if (unlikely(rc))
		return fail(run, HL_POST_SEND, rc, (uint32_t)(lane - run->lanes));
	lane->posted++;
	return 0;
}

static inline int post_receive(struct hl_run *run, struct hl_lane *lane)
{
	struct ibv_sge sge = { .addr = lane->recv_addr, .length = run->size, .lkey = lane->lkey };
	struct ibv_recv_wr wr = { .wr_id = (uint64_t)(lane - run->lanes),
				  .sg_list = &sge,
				  .num_sge = 1 };
	struct ibv_recv_wr *bad;
	const int rc = ibv_post_recv(qp_of(lane), &wr, &bad);

	if (unlikely(rc))
		return fail(run, HL_POST_RECV, rc, (uint32_t)wr.wr_id);
	lane->received++;
	return 0;
}

/* Spins until one completion of `cq` is there; it must be a good one. */
static inline int wait_one(struct hl_run *run, struct ibv_cq *cq)
{
	struct ibv_wc wc;
	uint32_t spins = 0;
	int n;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		if (unlikely(++spins % CHECK_EVERY == 0) && overdue(run))
			return run->where;
	if (unlikely(n < 0))
		return fail(run, HL_POLL, -n, 0);
	if (unlikely(wc.status != IBV_WC_SUCCESS))
		return fail_wc(run, &wc);
	return 0;
}

/* Spins until the peer's write of `value` is seen; a failed send queue ends the wait. */
static inline int wait_byte(struct hl_run *run, const volatile uint8_t *byte, uint8_t value)
{
	uint32_t spins = 0;

	while (*byte != value)
		if (unlikely(++spins % CHECK_EVERY == 0) && overdue(run))
			return run->where;
	return 0;
}

static inline void begin(struct hl_run *run)
{
	run->where = HL_DONE;
	run->first_ns = clock_ns(CLOCK_MONOTONIC_RAW);
}

static inline int end(struct hl_run *run)
{
	run->last_ns = clock_ns(CLOCK_MONOTONIC_RAW);
	return HL_DONE;
}

uint32_t hl_abi(void)
{
	return HL_ABI;
}

uint32_t hl_lane_bytes(void)
{
	return sizeof(struct hl_lane);
}

uint32_t hl_run_bytes(void)
{
	return sizeof(struct hl_run);
}

uint64_t hl_cpu_ticks(void)
{
	return cpu_ticks();
}

uint64_t hl_raw_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC_RAW);
}

/* Both clocks at one moment: the tightest of 64 brackets. */
void hl_read_both(uint64_t *raw_ns, uint64_t *ticks)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 64; i++) {
		const uint64_t before = clock_ns(CLOCK_MONOTONIC_RAW);
		const uint64_t middle = cpu_ticks();
		const uint64_t width = clock_ns(CLOCK_MONOTONIC_RAW) - before;

		if (width < best) {
			best = width;
			*raw_ns = before + width / 2;
			*ticks = middle;
		}
	}
}

/* Thousandths of a nanosecond that one reading of the clock takes. */
uint64_t hl_clock_cost_ns_times_1000(uint32_t clock)
{
	const uint64_t before = clock_ns(CLOCK_MONOTONIC_RAW);
	volatile uint64_t sink;

	for (int i = 0; i < 1000; i++)
		sink = stamp(clock);
	(void)sink;
	return clock_ns(CLOCK_MONOTONIC_RAW) - before;
}

void hl_durations(const uint64_t *stamps, uint64_t count, double ns_per_tick, uint64_t *out)
{
	for (uint64_t i = 0; i < count; i++)
		out[i] = (uint64_t)((double)(stamps[i + 1] - stamps[i]) * ns_per_tick + 0.5);
}

int hl_post_receives(struct hl_run *run)
{
	run->where = HL_DONE;
	for (uint32_t i = 0; i < run->lane_count; i++) {
		struct hl_lane *lane = &run->lanes[i];

		while (lane->received < run->messages && lane->received < run->recv_depth)
			if (post_receive(run, lane))
				return run->where;
	}
	return HL_DONE;
}

/* The pong has come: put its receive back, if one is still needed. */
static inline int take_pong(struct hl_run *run, struct hl_lane *lane, struct ibv_cq *cq)
{
	if (wait_one(run, cq))
		return run->where;
	if (lane->received < run->messages)
		return post_receive(run, lane);
	return 0;
}

static inline int give_ping(struct hl_run *run, struct hl_lane *lane, struct request *req)
{
	if (post(run, lane, req))
		return run->where;
	return wait_one(run, qp_of(lane)->send_cq);
}

int hl_send_lat(struct hl_run *run, int first)
{
	struct hl_lane *lane = run->lanes;
	struct ibv_cq *recv_cq = qp_of(lane)->recv_cq;
	struct request req;

	fill(&req, run, lane, IBV_WR_SEND);
	req.wr.send_flags |= IBV_SEND_SIGNALED;
	begin(run);
	for (uint64_t i = 0; i < run->messages; i++) {
		run->stamps[i] = stamp(run->clock);
		if (!first && take_pong(run, lane, recv_cq))
			return run->where;
		if (give_ping(run, lane, &req))
			return run->where;
		if (first && take_pong(run, lane, recv_cq))
			return run->where;
		lane->completed++;
	}
	run->stamps[run->messages] = stamp(run->clock);
	return end(run);
}

int hl_write_lat(struct hl_run *run, int first)
{
	struct hl_lane *lane = run->lanes;
	volatile uint8_t *mine = (volatile uint8_t *)(uintptr_t)(lane->send_addr + run->size - 1);
	volatile uint8_t *theirs = (volatile uint8_t *)(uintptr_t)(lane->recv_addr + run->size - 1);
	struct request req;

	fill(&req, run, lane, IBV_WR_RDMA_WRITE);
	req.wr.send_flags |= IBV_SEND_SIGNALED;
	begin(run);
	for (uint64_t i = 0; i < run->messages; i++) {
		const uint8_t value = (uint8_t)(i + 1);

		run->stamps[i] = stamp(run->clock);
		if (!first && wait_byte(run, theirs, value))
			return run->where;
		*mine = value;
		if (give_ping(run, lane, &req))
			return run->where;
		if (first && wait_byte(run, theirs, value))
			return run->where;
		lane->completed++;
	}
	run->stamps[run->messages] = stamp(run->clock);
	return end(run);
}

int hl_read_lat(struct hl_run *run)
{
	struct hl_lane *lane = run->lanes;
	struct request req;

	fill(&req, run, lane, IBV_WR_RDMA_READ);
	req.wr.send_flags |= IBV_SEND_SIGNALED;
	begin(run);
	for (uint64_t i = 0; i < run->messages; i++) {
		run->stamps[i] = stamp(run->clock);
		if (give_ping(run, lane, &req))
			return run->where;
		lane->completed++;
	}
	run->stamps[run->messages] = stamp(run->clock);
	return end(run);
}

/* Posts until the lane has `depth` outstanding; every cq_moderation-th and the last is signalled. */
static inline int fill_lane(struct hl_run *run, struct hl_lane *lane, struct request *req)
{
	while (lane->posted < run->messages && lane->posted - lane->completed < run->depth) {
		const uint64_t number = lane->posted + 1;
		const int ask = number % run->cq_moderation == 0 || number == run->messages;

		req->wr.send_flags = run->send_flags | (ask ? IBV_SEND_SIGNALED : 0);
		if (post(run, lane, req))
			return run->where;
	}
	return 0;
}

/* A signalled completion vouches for the unsignalled ones before it. */
static inline void credit(const struct hl_run *run, struct hl_lane *lane)
{
	const uint64_t next = lane->completed + run->cq_moderation;

	lane->completed = next < run->messages ? next : run->messages;
}

/* Takes what has completed; anything but 0 is the end of the run. */
static inline int reap(struct hl_run *run, struct ibv_cq *cq, uint32_t *spins)
{
	struct ibv_wc wc[POLL_BATCH];
	const int n = ibv_poll_cq(cq, POLL_BATCH, wc);

	if (unlikely(n < 0))
		return fail(run, HL_POLL, -n, 0);
	if (n == 0 && unlikely(++*spins % CHECK_EVERY == 0))
		return overdue(run);
	for (int i = 0; i < n; i++) {
		if (unlikely(wc[i].status != IBV_WC_SUCCESS))
			return fail_wc(run, &wc[i]);
		credit(run, &run->lanes[wc[i].wr_id]);
	}
	return 0;
}

static inline uint64_t lanes_done(const struct hl_run *run)
{
	uint64_t done = 0;

	for (uint32_t i = 0; i < run->lane_count; i++)
		done += run->lanes[i].completed == run->messages;
	return done;
}

static inline __attribute__((always_inline)) int stream(struct hl_run *run,
							enum ibv_wr_opcode opcode)
{
	struct ibv_cq *cq = qp_of(run->lanes)->send_cq;
	struct request req;
	uint32_t spins = 0;

	begin(run);
	do {
		for (uint32_t i = 0; i < run->lane_count; i++) {
			struct hl_lane *lane = &run->lanes[i];

			if (lane->posted == run->messages ||
			    lane->posted - lane->completed == run->depth)
				continue;
			fill(&req, run, lane, opcode);
			if (fill_lane(run, lane, &req))
				return run->where;
		}
		if (reap(run, cq, &spins))
			return run->where;
	} while (lanes_done(run) < run->lane_count);
	return end(run);
}

int hl_write_bw(struct hl_run *run)
{
	return stream(run, IBV_WR_RDMA_WRITE);
}

int hl_read_bw(struct hl_run *run)
{
	return stream(run, IBV_WR_RDMA_READ);
}

int hl_send_bw(struct hl_run *run)
{
	return stream(run, IBV_WR_SEND);
}

int hl_recv_bw(struct hl_run *run)
{
	struct ibv_cq *cq = qp_of(run->lanes)->recv_cq;
	uint64_t left = run->messages * run->lane_count;
	struct ibv_wc wc[POLL_BATCH];
	uint32_t spins = 0;

	begin(run);
	while (left) {
		const int n = ibv_poll_cq(cq, POLL_BATCH, wc);

		if (unlikely(n < 0))
			return fail(run, HL_POLL, -n, 0);
		if (n == 0 && unlikely(++spins % CHECK_EVERY == 0) && overdue(run))
			return run->where;
		for (int i = 0; i < n; i++) {
			struct hl_lane *lane;

			if (unlikely(wc[i].status != IBV_WC_SUCCESS))
				return fail_wc(run, &wc[i]);
			lane = &run->lanes[wc[i].wr_id];
			lane->completed++;
			left--;
			if (lane->received < run->messages && post_receive(run, lane))
				return run->where;
		}
	}
	return end(run);
}
