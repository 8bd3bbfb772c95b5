/*
 * The contract between the timed loops and their ctypes face (face.py mirrors these structs).
 * The caller owns all memory; a loop allocates nothing, prints nothing and takes no lock.
 */
#ifndef RDMABENCH_HOTLOOP_H
#define RDMABENCH_HOTLOOP_H

#include <stdint.h>

#define HL_ABI 1

enum hl_clock { HL_CLOCK_RAW = 0, HL_CLOCK_CPU = 1 };

/* Where a loop ended; HL_DONE is the only good ending. */
enum hl_where {
	HL_DONE = 0,
	HL_POST_SEND = 1,
	HL_POST_RECV = 2,
	HL_POLL = 3,
	HL_COMPLETION = 4,
	HL_DEADLINE = 5,
	HL_STOPPED = 6,
	HL_SOCKET = 7,
	HL_PEER_CLOSED = 8,
	HL_ARGUMENT = 9,
};

/* One QP (or one TCP stream) of a run. */
struct hl_lane {
	void *qp;             /* struct ibv_qp * */
	uint64_t send_addr;   /* local bytes to send */
	uint64_t recv_addr;   /* where bytes arrive: receives, the peer's writes, our reads */
	uint64_t remote_addr; /* the peer's bytes for write and read */
	uint32_t lkey;
	uint32_t rkey;
	int32_t fd;           /* TCP stream */
	uint32_t reserved;
	uint64_t posted;      /* out: messages posted */
	uint64_t completed;   /* out: messages completed */
	uint64_t received;    /* out: receives posted */
};

struct hl_run {
	uint32_t abi;
	uint32_t lane_count;
	struct hl_lane *lanes;
	uint64_t messages;    /* per lane */
	uint32_t size;
	uint32_t depth;
	uint32_t recv_depth;
	uint32_t cq_moderation;
	uint32_t send_flags;  /* or-ed into every work request: IBV_SEND_INLINE */
	uint32_t clock;       /* enum hl_clock of `stamps` */
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
	const volatile int32_t *stop;
	uint64_t *stamps;     /* messages + 1 clock readings; latency loops only */
	/* out */
	uint64_t first_ns;    /* CLOCK_MONOTONIC_RAW: before the first post */
	uint64_t last_ns;     /* CLOCK_MONOTONIC_RAW: after the last completion */
	int32_t where;        /* enum hl_where */
	int32_t error;        /* errno of the failed call */
	int32_t wc_status;    /* enum ibv_wc_status of a bad completion */
	uint32_t vendor_err;
	uint32_t lane;        /* which lane failed */
	uint32_t reserved;
};

/* HL_ABI, and the sizes of the two structs, for the face to compare with its own. */
uint32_t hl_abi(void);
uint32_t hl_lane_bytes(void);
uint32_t hl_run_bytes(void);

uint64_t hl_cpu_ticks(void);
uint64_t hl_raw_ns(void);
void hl_read_both(uint64_t *raw_ns, uint64_t *ticks);
uint64_t hl_clock_cost_ns_times_1000(uint32_t clock);

/* Nanoseconds between neighbouring stamps: `count` durations from `count` + 1 stamps. */
void hl_durations(const uint64_t *stamps, uint64_t count, double ns_per_tick, uint64_t *out);

/* Receives of all lanes, up to recv_depth each; before the peer may send. */
int hl_post_receives(struct hl_run *run);

/* Ping-pong of one outstanding message: `first` is 1 on the end that starts. */
int hl_send_lat(struct hl_run *run, int first);
int hl_write_lat(struct hl_run *run, int first);
int hl_read_lat(struct hl_run *run);

/* Streams with `depth` outstanding per lane. */
int hl_write_bw(struct hl_run *run);
int hl_read_bw(struct hl_run *run);
int hl_send_bw(struct hl_run *run);
int hl_recv_bw(struct hl_run *run);

/* The same over connected TCP sockets. */
int hl_tcp_lat(struct hl_run *run, int first);
int hl_tcp_send_bw(struct hl_run *run);
int hl_tcp_recv_bw(struct hl_run *run);

#endif
