/*
 * A verbs device made of shared memory, for the project's own tests.
 *
 * The initiator does all the work: it reads the responder's posted receives, copies straight into
 * the responder's registered memory and writes the receive completion, each with the time at which
 * it counts. So, as with a real NIC, nothing waits for the other side to call anything.
 *
 * One directory (LOOPBACK_RUN) is one fabric. It holds a file for the fabric (clock, QP numbers),
 * one per process (its keys) and one per QP (its receive queue).
 */
#ifndef LOOPBACK_H
#define LOOPBACK_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#else
#include <time.h>
#endif

#define LOOPBACK_MAX_SGE 16
#define LOOPBACK_MAX_INLINE 256
#define LOOPBACK_MAX_WR 32768
#define LOOPBACK_KEYS 4096u /* keys of one process; the low 12 bits of a key are its slot */
#define LOOPBACK_QPS 65536u
#define LOOPBACK_EXPORT __attribute__((visibility("default")))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* ---- what lies in shared memory ---- */

struct fabric_shared {
    uint32_t magic;
    _Atomic uint32_t next_qp_num;
    double ticks_per_ns;
    _Atomic int32_t qp_owner[LOOPBACK_QPS]; /* process number by QP number; 0: none */
};

struct key_entry {
    _Atomic uint32_t key; /* 0: free; written last, cleared first */
    uint32_t pd;
    uint32_t access;
    int32_t memory_fd;     /* of the owner; -1: no page is shared */
    uint64_t iova;
    uint64_t length;
    uint64_t address;      /* where iova lies in the owner */
    uint64_t shared_start; /* owner's addresses whose pages others can map */
    uint64_t shared_end;
    uint64_t file_offset;  /* of shared_start in memory_fd */
};

/* What the engine is to be woken for: nothing (it is awake), an armed CQ, any work of its own
 * process, or that and what arrives. */
enum alert { ALERT_NONE, ALERT_PACING, ALERT_IDLE, ALERT_ARMED };

struct process_shared {
    int32_t pid;
    _Alignas(64) _Atomic uint32_t doorbell; /* a futex */
    _Atomic uint32_t alert;                 /* enum alert */
    _Alignas(64) _Atomic uint32_t atomics;  /* lock of RDMA atomics on pages that are not shared */
    _Alignas(64) struct key_entry keys[LOOPBACK_KEYS];
};

struct receive_slot {
    _Atomic uint64_t due; /* ticks from which the completion counts; 0: not yet used */
    uint64_t wr_id;
    uint32_t byte_len;
    __be32 imm_data;
    uint8_t opcode;
    uint8_t status;
    uint8_t with_imm;
    uint8_t solicited;
    uint8_t num_sge;
    uint8_t unused[3];
    struct ibv_sge sge[];
};

struct qp_shared {
    uint32_t qp_num;
    uint32_t device;
    uint32_t pd;
    uint32_t type;
    uint32_t access;
    uint32_t slot_mask;
    uint32_t slot_stride;
    uint32_t min_rnr_timer;
    char process[32]; /* file name of the owner's process_shared */
    _Atomic uint32_t state;
    uint32_t dest_qp_num;
    _Alignas(64) _Atomic uint64_t posted; /* receives, counted by the owner */
    _Alignas(64) _Atomic uint64_t filled; /* receives used, counted by the peer */
    _Alignas(64) unsigned char slots[];
};

/* ---- private to a process ---- */

struct mapping {
    uint32_t key;
    char *base; /* where shared_start of that key lies here */
    size_t size;
};

struct process {
    struct process *next;
    char name[32];
    pid_t pid;
    int pidfd;
    bool is_self;
    bool dead;
    uint64_t checked; /* ticks of the last look at pidfd */
    struct process_shared *shared;
    struct mapping mappings[LOOPBACK_KEYS];
};

struct fabric {
    char directory[128];
    struct fabric_shared *shared;
    struct process *self;
    struct process *processes;
    double ticks_per_ns;
    double ticks_per_byte;
    uint64_t delay; /* one way, in ticks */
};

struct span {
    char *direct;     /* here, or NULL where only the kernel can copy */
    uint64_t address; /* in the owner */
    size_t length;
};

struct send_entry {
    uint64_t wr_id;
    uint64_t arrive;   /* ticks at which the last byte is at the responder */
    uint64_t complete; /* ticks at which the initiator may know */
    uint64_t remote_addr;
    uint64_t compare_add;
    uint64_t swap;
    uint32_t rkey;
    __be32 imm_data;
    uint32_t byte_len;
    uint32_t placed; /* bytes of a write that lie at the responder already */
    uint8_t opcode;
    uint8_t status;
    uint8_t signalled;
    uint8_t solicited;
    uint8_t is_inline;
    uint8_t num_sge;
    union {
        struct ibv_sge sge[LOOPBACK_MAX_SGE];
        char data[LOOPBACK_MAX_INLINE];
    };
};

struct loopback_cq {
    union {
        struct ibv_cq base;
        struct ibv_cq_ex ex;
    };
    struct loopback_cq *next;
    struct loopback_qp **qps;
    unsigned int qp_count;
    unsigned int qp_room;
    unsigned int turn;
    bool armed;
    uint64_t armed_at; /* ticks: only what is due later is told of */
    bool solicited_only;
    unsigned int events; /* handed to ibv_get_cq_event */
    struct ibv_wc current; /* of the extended interface */
};

struct wr_draft {
    struct ibv_send_wr wr;
    struct ibv_sge sge[LOOPBACK_MAX_SGE];
    char data[LOOPBACK_MAX_INLINE];
};

struct loopback_qp {
    union {
        struct ibv_qp base;
        struct ibv_qp_ex ex;
    };
    struct loopback_qp *next;
    struct loopback_cq *send_cq;
    struct loopback_cq *recv_cq;
    struct qp_shared *own;
    size_t own_size;
    struct qp_shared *peer;
    size_t peer_size;
    struct process *peer_process;
    uint64_t connect_tried;

    struct send_entry *sends;
    uint32_t send_mask;
    uint32_t max_send_wr;
    uint64_t send_done;     /* oldest not yet polled or retired */
    uint64_t send_executed; /* oldest whose bytes have not moved */
    uint64_t send_posted;
    uint64_t wire_free;     /* ticks at which the way out is free again */
    uint64_t response_free; /* the same for the answers to reads */
    uint64_t last_complete;
    uint64_t stalled_since; /* ticks; 0: the oldest entry does not wait for the peer */
    bool is_landing;        /* the post waits until its writes are due */
    uint64_t seen_posted;   /* peer's receives known to be there */

    uint64_t recv_polled;
    uint32_t max_recv_wr;

    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    bool has_ops;
    struct wr_draft *drafts;
    unsigned int draft_count;
    int draft_error;
};

extern struct fabric fabric;
extern struct loopback_qp *all_qps;
extern struct loopback_cq *all_cqs;

static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t value;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#else
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
#endif
}

static inline uint64_t ns_to_ticks(double ns)
{
    return (uint64_t)(ns * fabric.ticks_per_ns);
}

static inline struct receive_slot *slot_of(struct qp_shared *qp, uint64_t index)
{
    return (struct receive_slot *)(qp->slots + (index & qp->slot_mask) * qp->slot_stride);
}

static inline struct send_entry *send_at(const struct loopback_qp *qp, uint64_t index)
{
    return &qp->sends[index & qp->send_mask];
}

static inline bool is_response(const struct send_entry *entry)
{
    return entry->opcode == IBV_WR_RDMA_READ || entry->opcode == IBV_WR_ATOMIC_CMP_AND_SWP
           || entry->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static inline bool is_plain_write(const struct send_entry *entry)
{
    return entry->opcode == IBV_WR_RDMA_WRITE;
}

/* fabric.c */
int fabric_open(void);
void *fabric_create(const char *name, size_t size);
void *fabric_map(const char *name, size_t *size);
void fabric_unlink(const char *name);
void fabric_qp_name(uint32_t qp_num, pid_t owner, char name[40]);
unsigned int fabric_devices(void);
double fabric_gbit_s(void);
struct process *process_find(const char *name);
bool process_alive(struct process *process, uint64_t now);
char *process_map(struct process *process, const struct key_entry *entry);

/* memory.c */
bool memory_span(struct process *process, uint32_t key, uint32_t pd, unsigned int access,
                 uint64_t address, size_t length, struct span *span);
bool memory_write(const struct process *process, const struct span *to, const void *from,
                  size_t length);
bool memory_read(const struct process *process, const struct span *from, void *to, size_t length);
void memory_place(char *to, const char *from, size_t length);
void memory_map_all(struct process *process, uint32_t pd);

/* peer.c */
void qp_connect(struct loopback_qp *qp, uint64_t now);
void qp_disconnect(struct loopback_qp *qp);
bool peer_answers(struct loopback_qp *qp, uint64_t now);
double peer_retry_ns(const struct loopback_qp *qp);
double peer_rnr_ns(uint32_t code);

/* transfer.c */
enum step { STEP_DONE, STEP_WAIT };

void qp_fail(struct loopback_qp *qp);
enum step qp_execute(struct loopback_qp *qp, struct send_entry *entry, uint64_t now);
int qp_local_spans(const struct loopback_qp *qp, struct send_entry *entry, unsigned int access,
                   struct span spans[LOOPBACK_MAX_SGE]);
bool qp_remote_span(const struct loopback_qp *qp, const struct send_entry *entry,
                    unsigned int access, struct span *span);

/* post.c */
int qp_post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int qp_post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void qp_progress(struct loopback_qp *qp, uint64_t now);
bool qp_has_deferred(const struct loopback_qp *qp);

/* completion.c */
int cq_poll(struct ibv_cq *base, int wanted, struct ibv_wc *wc);
int cq_notify(struct ibv_cq *base, int solicited_only);
int cq_attach(struct loopback_cq *cq, struct loopback_qp *qp);
void cq_detach(struct loopback_cq *cq, struct loopback_qp *qp);
uint64_t cq_next_due(const struct loopback_cq *cq);
void cq_signal(struct loopback_cq *cq);
struct ibv_cq_ex *cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *init);

/* engine.c */
extern uint32_t engine_progress; /* counts what was moved; under the lock */
bool engine_enter(void);
void engine_leave(bool locked);
void engine_watch(bool is_armed);
void engine_ring(struct process_shared *process);

/* draft.c */
int draft_open(struct loopback_qp *qp, uint64_t send_ops);

/* device.c */
void device_gids(unsigned int device, union ibv_gid gids[2]);
unsigned int device_index(const struct ibv_context *context);
extern const struct verbs_context device_ops;

/* queue.c */
struct ibv_qp *queue_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init);

#endif
