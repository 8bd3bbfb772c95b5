/*
 * Moves the bytes of posted sends, at the times the link model gives them.
 *
 * A message of n bytes posted at t leaves at start = max(t, the end of the one before), is at the
 * responder at start + n / rate + delay, and completes a delay later. A read or an atomic completes
 * at start + delay + n / rate + delay.
 *
 * Who moves the bytes, given that the responder may only watch its memory:
 *  - a send: at once, with the time from which its completion counts beside it;
 *  - a read or an atomic: when it completes, in the initiator's poll;
 *  - a write on an idle queue (all before it has completed): the post itself waits until the write is
 *    due, so that a ping-pong over memory takes the delay whether or not its caller polls;
 *  - a write behind others: any later post or poll of the initiator, or the engine after a while.
 * Nothing overtakes what was posted before it.
 */
#include "loopback.h"

#include <errno.h>
#include <sys/mman.h>

#define CONNECT_RETRY_NS 2e5
#define LONGEST_RETRY_NS 5e8
#define LAST_LINE 64u /* bytes of a write that are not shown before it is due */

enum step { STEP_DONE, STEP_WAIT };

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

/* ---- the peer ---- */

static bool gid_is_of_device(const union ibv_gid *gid, unsigned int device)
{
    union ibv_gid gids[2];

    device_gids(device, gids);
    return memcmp(gid, &gids[0], sizeof(*gid)) == 0 || memcmp(gid, &gids[1], sizeof(*gid)) == 0;
}

static void map_peer(struct loopback_qp *qp, pid_t owner)
{
    struct qp_shared *peer;
    char name[40];

    fabric_qp_name(qp->attr.dest_qp_num, owner, name);
    peer = fabric_map(name, &qp->peer_size);
    if (peer == NULL)
        return;
    qp->peer = peer;
    qp->peer_process = process_find(peer->process);
    if (qp->peer_process == NULL || peer->qp_num != qp->attr.dest_qp_num
        || peer->type != qp->base.qp_type
        || !gid_is_of_device(&qp->attr.ah_attr.grh.dgid, peer->device)) {
        qp_disconnect(qp);
        return;
    }
    qp->seen_posted = 0;
    memory_map_all(qp->peer_process, peer->pd);
}

__attribute__((cold, noinline)) void qp_connect(struct loopback_qp *qp, uint64_t now)
{
    pid_t owner;

    if (qp->peer != NULL || now - qp->connect_tried < ns_to_ticks(CONNECT_RETRY_NS))
        return;
    qp->connect_tried = now;
    owner = fabric.shared->qp_owner[qp->attr.dest_qp_num % LOOPBACK_QPS];
    if (owner != 0)
        map_peer(qp, owner);
}

static bool peer_answers(struct loopback_qp *qp, uint64_t now)
{
    uint32_t state;

    if (unlikely(qp->peer == NULL)) {
        qp_connect(qp, now);
        if (qp->peer == NULL)
            return false;
    }
    state = atomic_load_explicit(&qp->peer->state, memory_order_acquire);
    return likely((state == IBV_QPS_RTS || state == IBV_QPS_RTR || state == IBV_QPS_SQD)
                  && qp->peer->dest_qp_num == qp->base.qp_num
                  && process_alive(qp->peer_process, now));
}

static double retry_ns(const struct loopback_qp *qp)
{
    const double once = 4096.0 * (double)(1ull << (qp->attr.timeout & 31));
    const double all = once * (qp->attr.retry_cnt + 1);

    return qp->attr.timeout == 0 || all > LONGEST_RETRY_NS ? LONGEST_RETRY_NS : all;
}

/* The code of a minimum RNR timer in hundredths of a millisecond, from the InfiniBand table. */
static double rnr_ns(uint32_t code)
{
    static const uint32_t units[32] = {65536, 1,    2,    3,    4,    6,     8,     12,
                                       16,    24,   32,   48,   64,   96,    128,   192,
                                       256,   384,  512,  768,  1024, 1536,  2048,  3072,
                                       4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

    return units[code & 31] * 1e4;
}

/* ---- errors ---- */

void qp_fail(struct loopback_qp *qp)
{
    qp->attr.qp_state = IBV_QPS_ERR;
    atomic_store_explicit(&qp->own->state, IBV_QPS_ERR, memory_order_release);
}

__attribute__((cold, noinline)) static enum step fail(struct loopback_qp *qp,
                                                      struct send_entry *entry, uint64_t now,
                                                      enum ibv_wc_status status)
{
    entry->status = (uint8_t)status;
    if (entry->complete < now)
        entry->complete = now;
    qp_fail(qp);
    return STEP_DONE;
}

/* As fail(), for what the responder refuses: it gives the connection up as well. */
__attribute__((cold, noinline)) static enum step refuse(struct loopback_qp *qp,
                                                        struct send_entry *entry, uint64_t now,
                                                        enum ibv_wc_status status)
{
    atomic_store_explicit(&qp->peer->state, IBV_QPS_ERR, memory_order_release);
    return fail(qp, entry, now, status);
}

/* The peer is not ready for the entry: waits, or gives up after `limit_ns` with `status`. */
__attribute__((cold, noinline)) static enum step stall(struct loopback_qp *qp,
                                                       struct send_entry *entry, uint64_t now,
                                                       double limit_ns, enum ibv_wc_status status)
{
    if (qp->stalled_since == 0)
        qp->stalled_since = now > entry->arrive ? now : entry->arrive;
    if (now > qp->stalled_since && now - qp->stalled_since > ns_to_ticks(limit_ns))
        return fail(qp, entry, now, status);
    return STEP_WAIT;
}

/* ---- the operations ---- */

/* The entry's own bytes; the number of spans, or -1 where a local key does not fit. */
static int local_spans(const struct loopback_qp *qp, struct send_entry *entry, unsigned int access,
                       struct span spans[LOOPBACK_MAX_SGE])
{
    if (entry->is_inline) {
        spans[0] = (struct span){.direct = entry->data, .length = entry->byte_len};
        return 1;
    }
    for (int i = 0; i < entry->num_sge; i++) {
        const struct ibv_sge *sge = &entry->sge[i];

        if (!memory_span(fabric.self, sge->lkey, qp->base.pd->handle, access, sge->addr,
                         sge->length, &spans[i]))
            return -1;
    }
    return entry->num_sge;
}

static struct span part_of(const struct span *span, size_t offset, size_t length)
{
    return (struct span){.direct = span->direct == NULL ? NULL : span->direct + offset,
                         .address = span->address + offset,
                         .length = length};
}

/* Copies `from` of this process over `to` of the peer, span by span. */
static bool copy_spans(const struct process *peer, const struct span *to, const struct span *from,
                       int from_count)
{
    size_t to_offset = 0;
    size_t from_offset = 0;

    for (int i = 0; i < from_count;) {
        const size_t from_left = from[i].length - from_offset;
        const size_t to_left = to->length - to_offset;
        const size_t length = from_left < to_left ? from_left : to_left;
        const struct span place = part_of(to, to_offset, length);

        if (length > 0 && !memory_write(peer, &place, from[i].direct + from_offset, length))
            return false;
        from_offset += length;
        to_offset += length;
        if (from_offset == from[i].length) {
            from_offset = 0;
            i++;
        } else {
            to_offset = 0;
            to++;
        }
    }
    return true;
}

static bool remote_span(const struct loopback_qp *qp, const struct send_entry *entry,
                        unsigned int access, struct span *span)
{
    if (entry->byte_len == 0) {
        *span = (struct span){.address = entry->remote_addr};
        return true;
    }
    return (access & ~qp->peer->access) == 0
           && memory_span(qp->peer_process, entry->rkey, qp->peer->pd, access, entry->remote_addr,
                          entry->byte_len, span);
}

static enum step take_slot(struct loopback_qp *qp, struct send_entry *entry, uint64_t now,
                           struct receive_slot **slot)
{
    const uint64_t filled = atomic_load_explicit(&qp->peer->filled, memory_order_relaxed);
    const bool limited = qp->attr.rnr_retry < 7;
    const double limit_ns = limited ? rnr_ns(qp->peer->min_rnr_timer) * (qp->attr.rnr_retry + 1) : 0;

    if (filled >= qp->seen_posted)
        qp->seen_posted = atomic_load_explicit(&qp->peer->posted, memory_order_acquire);
    if (unlikely(filled >= qp->seen_posted))
        return stall(qp, entry, now, limited ? limit_ns : 1e18, IBV_WC_RNR_RETRY_EXC_ERR);
    *slot = slot_of(qp->peer, filled);
    __builtin_prefetch(slot_of(qp->peer, filled + 1), 1);
    return STEP_DONE;
}

static void fill_slot(struct loopback_qp *qp, const struct send_entry *entry,
                      struct receive_slot *slot, enum ibv_wc_opcode opcode,
                      enum ibv_wc_status status)
{
    slot->byte_len = entry->byte_len;
    slot->imm_data = entry->imm_data;
    slot->with_imm =
        entry->opcode == IBV_WR_SEND_WITH_IMM || entry->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    slot->opcode = (uint8_t)opcode;
    slot->status = (uint8_t)status;
    slot->solicited = entry->solicited;
    atomic_store_explicit(&qp->peer->filled,
                          atomic_load_explicit(&qp->peer->filled, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    atomic_store_explicit(&slot->due, entry->arrive, memory_order_release);
    if (unlikely(atomic_load_explicit(&qp->peer_process->shared->alert, memory_order_relaxed)
                 == ALERT_ARMED))
        engine_ring(qp->peer_process->shared);
}

static enum ibv_wc_status receive_spans(const struct loopback_qp *qp, const struct send_entry *entry,
                                        const struct receive_slot *slot,
                                        struct span spans[LOOPBACK_MAX_SGE])
{
    size_t room = 0;

    for (unsigned int i = 0; i < slot->num_sge; i++) {
        const struct ibv_sge *sge = &slot->sge[i];

        if (!memory_span(qp->peer_process, sge->lkey, qp->peer->pd, IBV_ACCESS_LOCAL_WRITE,
                         sge->addr, sge->length, &spans[i]))
            return IBV_WC_LOC_PROT_ERR;
        room += sge->length;
    }
    return room < entry->byte_len ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

static enum step execute_send(struct loopback_qp *qp, struct send_entry *entry, uint64_t now)
{
    struct span from[LOOPBACK_MAX_SGE];
    struct span to[LOOPBACK_MAX_SGE];
    struct receive_slot *slot = NULL;
    enum ibv_wc_status status;
    const int count = local_spans(qp, entry, 0, from);

    if (count < 0)
        return fail(qp, entry, now, IBV_WC_LOC_PROT_ERR);
    if (take_slot(qp, entry, now, &slot) == STEP_WAIT || slot == NULL)
        return entry->status == IBV_WC_SUCCESS ? STEP_WAIT : STEP_DONE;
    status = receive_spans(qp, entry, slot, to);
    if (unlikely(status != IBV_WC_SUCCESS)) {
        fill_slot(qp, entry, slot, IBV_WC_RECV, status);
        return refuse(qp, entry, now,
                      status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR);
    }
    if (!copy_spans(qp->peer_process, to, from, count))
        return refuse(qp, entry, now, IBV_WC_REM_OP_ERR);
    fill_slot(qp, entry, slot, IBV_WC_RECV, IBV_WC_SUCCESS);
    return STEP_DONE;
}

static enum step execute_write(struct loopback_qp *qp, struct send_entry *entry, uint64_t now)
{
    struct span from[LOOPBACK_MAX_SGE];
    struct span to;
    struct receive_slot *slot = NULL;
    const int count = local_spans(qp, entry, 0, from);

    if (count < 0)
        return fail(qp, entry, now, IBV_WC_LOC_PROT_ERR);
    if (!remote_span(qp, entry, IBV_ACCESS_REMOTE_WRITE, &to))
        return refuse(qp, entry, now, IBV_WC_REM_ACCESS_ERR);
    if (!is_plain_write(entry)
        && (take_slot(qp, entry, now, &slot) == STEP_WAIT || slot == NULL))
        return entry->status == IBV_WC_SUCCESS ? STEP_WAIT : STEP_DONE;
    if (entry->placed > 0) {
        to = part_of(&to, entry->placed, entry->byte_len - entry->placed);
        from[0] = part_of(&from[0], entry->placed, entry->byte_len - entry->placed);
    }
    while (qp->is_landing && ticks() < entry->arrive)
        ; /* as late as can be, so that nothing but the copy comes after */
    if (!copy_spans(qp->peer_process, &to, from, count))
        return refuse(qp, entry, now, IBV_WC_REM_OP_ERR);
    if (slot != NULL)
        fill_slot(qp, entry, slot, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS);
    return STEP_DONE;
}

static enum step execute_read(struct loopback_qp *qp, struct send_entry *entry, uint64_t now)
{
    struct span to[LOOPBACK_MAX_SGE];
    struct span from;
    const int count = local_spans(qp, entry, IBV_ACCESS_LOCAL_WRITE, to);
    size_t offset = 0;

    if (count < 0)
        return fail(qp, entry, now, IBV_WC_LOC_PROT_ERR);
    if (!remote_span(qp, entry, IBV_ACCESS_REMOTE_READ, &from))
        return refuse(qp, entry, now, IBV_WC_REM_ACCESS_ERR);
    for (int i = 0; i < count; i++) {
        const struct span part = part_of(&from, offset, to[i].length);

        if (to[i].length > 0
            && !memory_read(qp->peer_process, &part, to[i].direct, to[i].length))
            return refuse(qp, entry, now, IBV_WC_REM_OP_ERR);
        offset += to[i].length;
    }
    return STEP_DONE;
}

static uint64_t new_value(const struct send_entry *entry, uint64_t old)
{
    if (entry->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
        return old + entry->compare_add;
    return old == entry->compare_add ? entry->swap : old;
}

static bool change_word(const struct loopback_qp *qp, const struct send_entry *entry,
                        const struct span *word, uint64_t *old)
{
    _Atomic uint32_t *lock = &qp->peer_process->shared->atomics;
    uint64_t value;
    bool done;

    if (word->direct != NULL) {
        _Atomic uint64_t *direct = (_Atomic uint64_t *)(void *)word->direct;

        *old = atomic_load(direct);
        while (!atomic_compare_exchange_weak(direct, old, new_value(entry, *old)))
            ;
        return true;
    }
    while (atomic_exchange_explicit(lock, 1, memory_order_acquire) != 0)
        ;
    done = memory_read(qp->peer_process, word, old, sizeof(*old));
    value = new_value(entry, *old);
    done = done && memory_write(qp->peer_process, word, &value, sizeof(value));
    atomic_store_explicit(lock, 0, memory_order_release);
    return done;
}

static enum step execute_atomic(struct loopback_qp *qp, struct send_entry *entry, uint64_t now)
{
    struct span to[LOOPBACK_MAX_SGE];
    struct span word;
    uint64_t old = 0;

    if (entry->byte_len != sizeof(old))
        return fail(qp, entry, now, IBV_WC_LOC_LEN_ERR);
    if (local_spans(qp, entry, IBV_ACCESS_LOCAL_WRITE, to) != 1)
        return fail(qp, entry, now, IBV_WC_LOC_PROT_ERR);
    if (entry->remote_addr % sizeof(old) != 0)
        return refuse(qp, entry, now, IBV_WC_REM_INV_REQ_ERR);
    if (!remote_span(qp, entry, IBV_ACCESS_REMOTE_ATOMIC, &word))
        return refuse(qp, entry, now, IBV_WC_REM_ACCESS_ERR);
    if (!change_word(qp, entry, &word, &old))
        return refuse(qp, entry, now, IBV_WC_REM_OP_ERR);
    memcpy(to[0].direct, &old, sizeof(old));
    return STEP_DONE;
}

/* ---- their order and times ---- */

/* Whether what the entry writes is written over, as a whole, by the next one, which is due too. */
static bool is_overwritten(const struct loopback_qp *qp, const struct send_entry *entry,
                           uint64_t now)
{
    const struct send_entry *next = send_at(qp, qp->send_executed + 1);

    if (qp->send_executed + 1 == qp->send_posted || next->opcode != entry->opcode
        || next->rkey != entry->rkey || next->byte_len != entry->byte_len
        || next->remote_addr != entry->remote_addr || entry->is_inline || next->is_inline)
        return false;
    if (is_plain_write(entry))
        return now >= next->arrive;
    return entry->opcode == IBV_WR_RDMA_READ && now >= next->complete && entry->num_sge == 1
           && next->num_sge == 1 && entry->sge[0].addr == next->sge[0].addr
           && entry->sge[0].lkey == next->sge[0].lkey;
}

static enum step execute(struct loopback_qp *qp, struct send_entry *entry, uint64_t now)
{
    if (unlikely(!peer_answers(qp, now)))
        return stall(qp, entry, now, retry_ns(qp), IBV_WC_RETRY_EXC_ERR);
    switch ((enum ibv_wr_opcode)entry->opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
        return execute_send(qp, entry, now);
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return is_overwritten(qp, entry, now) ? STEP_DONE : execute_write(qp, entry, now);
    case IBV_WR_RDMA_READ:
        return is_overwritten(qp, entry, now) ? STEP_DONE : execute_read(qp, entry, now);
    default:
        return execute_atomic(qp, entry, now);
    }
}

static void flush(struct loopback_qp *qp, uint64_t now)
{
    while (qp->send_executed != qp->send_posted) {
        struct send_entry *entry = send_at(qp, qp->send_executed++);

        entry->status = IBV_WC_WR_FLUSH_ERR;
        entry->complete = now;
    }
}

/* A wait for the peer moves the entry, and with it the link, to a later time. */
static void shift(struct loopback_qp *qp, struct send_entry *entry, uint64_t now)
{
    if (now > entry->arrive)
        entry->arrive = now;
    if (entry->complete < entry->arrive + fabric.delay)
        entry->complete = entry->arrive + fabric.delay;
    if (qp->last_complete < entry->complete)
        qp->last_complete = entry->complete;
    qp->stalled_since = 0;
}

static uint64_t execution_time(const struct send_entry *entry)
{
    if (is_response(entry))
        return entry->complete;
    return entry->opcode == IBV_WR_SEND || entry->opcode == IBV_WR_SEND_WITH_IMM ? 0
                                                                                : entry->arrive;
}

void qp_progress(struct loopback_qp *qp, uint64_t now)
{
    while (qp->send_executed != qp->send_posted) {
        struct send_entry *entry = send_at(qp, qp->send_executed);

        if (unlikely(qp->own->state == IBV_QPS_ERR)) {
            qp->attr.qp_state = IBV_QPS_ERR;
            flush(qp, now);
            return;
        }
        if (now < execution_time(entry))
            return;
        if (unlikely(qp->stalled_since != 0)) {
            const uint64_t arrive = entry->arrive;

            if (execute(qp, entry, now) == STEP_WAIT)
                return;
            if (entry->status == IBV_WC_SUCCESS && now > arrive)
                shift(qp, entry, now);
        } else if (execute(qp, entry, now) == STEP_WAIT) {
            return;
        }
        qp->stalled_since = 0;
        qp->send_executed++;
        engine_progress++;
    }
}

/* Whether an entry waits that the responder must see even if the initiator calls nothing more. */
bool qp_has_deferred(const struct loopback_qp *qp)
{
    return qp->send_executed != qp->send_posted && !is_response(send_at(qp, qp->send_executed));
}

/* Places all of a write but its last line once its first byte may be there. */
static void place_body(struct loopback_qp *qp, struct send_entry *entry, uint64_t now)
{
    struct span from[LOOPBACK_MAX_SGE];
    struct span to;

    if (entry->byte_len <= LAST_LINE || !peer_answers(qp, now)
        || local_spans(qp, entry, 0, from) != 1
        || !remote_span(qp, entry, IBV_ACCESS_REMOTE_WRITE, &to) || to.direct == NULL)
        return;
    memcpy(to.direct, from[0].direct, entry->byte_len - LAST_LINE);
    __builtin_prefetch(to.direct + entry->byte_len - 1, 1);
    entry->placed = entry->byte_len - LAST_LINE;
}

/* Waits for the writes at the head of the queue to be due and shows them. */
static void land(struct loopback_qp *qp)
{
    const double per_byte = fabric.ticks_per_byte;

    while (qp->send_executed != qp->send_posted && qp->stalled_since == 0) {
        struct send_entry *entry = send_at(qp, qp->send_executed);
        const uint64_t flight = (uint64_t)(entry->byte_len * per_byte);

        if (is_response(entry))
            return;
        while (ticks() < entry->arrive - flight)
            ;
        place_body(qp, entry, ticks());
        qp->is_landing = true;
        qp_progress(qp, entry->arrive);
        qp->is_landing = false;
    }
}

/* ---- posting ---- */

static int check_send(const struct loopback_qp *qp, const struct ibv_send_wr *wr)
{
    if (unlikely(qp->attr.qp_state != IBV_QPS_RTS && qp->attr.qp_state != IBV_QPS_ERR))
        return EINVAL;
    if (unlikely(wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->init.cap.max_send_sge
                 || wr->opcode > IBV_WR_ATOMIC_FETCH_AND_ADD))
        return EINVAL;
    if (unlikely(qp->send_posted - qp->send_done >= qp->max_send_wr))
        return ENOMEM;
    return 0;
}

static int take_data(const struct loopback_qp *qp, struct send_entry *entry,
                     const struct ibv_send_wr *wr)
{
    uint64_t total = 0;

    for (int i = 0; i < wr->num_sge; i++)
        total += wr->sg_list[i].length;
    if (total > 0x7fffffffu)
        return EINVAL;
    entry->byte_len = (uint32_t)total;
    entry->num_sge = (uint8_t)wr->num_sge;
    entry->is_inline = (wr->send_flags & IBV_SEND_INLINE) != 0;
    if (!entry->is_inline) {
        for (int i = 0; i < wr->num_sge; i++)
            entry->sge[i] = wr->sg_list[i];
        return 0;
    }
    if (total > qp->init.cap.max_inline_data || wr->opcode == IBV_WR_RDMA_READ)
        return EINVAL;
    total = 0;
    for (int i = 0; i < wr->num_sge; i++) {
        memcpy(entry->data + total, (const void *)(uintptr_t)wr->sg_list[i].addr,
               wr->sg_list[i].length);
        total += wr->sg_list[i].length;
    }
    return 0;
}

static void set_times(struct loopback_qp *qp, struct send_entry *entry, uint64_t now)
{
    const uint64_t flight = (uint64_t)(entry->byte_len * fabric.ticks_per_byte);
    uint64_t start = now > qp->wire_free ? now : qp->wire_free;

    if (is_response(entry)) {
        start += fabric.delay;
        if (start < qp->response_free)
            start = qp->response_free;
        qp->response_free = start + flight;
        entry->arrive = start;
        entry->complete = start + flight + fabric.delay;
    } else {
        qp->wire_free = start + flight;
        entry->arrive = start + flight + fabric.delay;
        entry->complete = entry->arrive + fabric.delay;
    }
    if (entry->complete < qp->last_complete)
        entry->complete = qp->last_complete;
    qp->last_complete = entry->complete;
}

static void take_remote(struct send_entry *entry, const struct ibv_send_wr *wr)
{
    if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        entry->remote_addr = wr->wr.atomic.remote_addr;
        entry->rkey = wr->wr.atomic.rkey;
        entry->compare_add = wr->wr.atomic.compare_add;
        entry->swap = wr->wr.atomic.swap;
    } else {
        entry->remote_addr = wr->wr.rdma.remote_addr;
        entry->rkey = wr->wr.rdma.rkey;
    }
}

static int enqueue(struct loopback_qp *qp, const struct ibv_send_wr *wr, uint64_t now)
{
    struct send_entry *entry = send_at(qp, qp->send_posted);
    int rc = check_send(qp, wr);

    if (rc == 0)
        rc = take_data(qp, entry, wr);
    if (unlikely(rc != 0))
        return rc;
    entry->wr_id = wr->wr_id;
    entry->opcode = (uint8_t)wr->opcode;
    entry->status = IBV_WC_SUCCESS;
    entry->signalled = qp->init.sq_sig_all || (wr->send_flags & IBV_SEND_SIGNALED) != 0;
    entry->solicited = (wr->send_flags & IBV_SEND_SOLICITED) != 0;
    entry->imm_data = wr->imm_data;
    entry->placed = 0;
    take_remote(entry, wr);
    set_times(qp, entry, now);
    qp->send_posted++;
    return 0;
}

int qp_post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct loopback_qp *qp = (struct loopback_qp *)base;
    const bool locked = engine_enter();
    const uint64_t now = ticks();
    const bool is_idle = qp->send_executed == qp->send_posted && now >= qp->last_complete;
    bool has_deferred;
    bool is_armed;
    int rc = 0;

    for (; wr != NULL; wr = wr->next) {
        rc = enqueue(qp, wr, now);
        if (unlikely(rc != 0)) {
            *bad = wr;
            break;
        }
    }
    qp_progress(qp, now);
    if (is_idle && qp->own->state != IBV_QPS_ERR)
        land(qp);
    has_deferred = qp_has_deferred(qp);
    is_armed = qp->send_cq->armed;
    engine_leave(locked);
    if (unlikely(has_deferred || is_armed))
        engine_watch(is_armed);
    return rc;
}

static int enqueue_receive(struct loopback_qp *qp, const struct ibv_recv_wr *wr)
{
    const uint64_t posted = atomic_load_explicit(&qp->own->posted, memory_order_relaxed);
    struct receive_slot *slot = slot_of(qp->own, posted);

    if (unlikely(qp->attr.qp_state == IBV_QPS_RESET || wr->num_sge < 0
                 || (uint32_t)wr->num_sge > qp->init.cap.max_recv_sge))
        return EINVAL;
    if (unlikely(posted - qp->recv_polled >= qp->max_recv_wr))
        return ENOMEM;
    slot->wr_id = wr->wr_id;
    slot->num_sge = (uint8_t)wr->num_sge;
    for (int i = 0; i < wr->num_sge; i++)
        slot->sge[i] = wr->sg_list[i];
    atomic_store_explicit(&slot->due, 0, memory_order_relaxed);
    atomic_store_explicit(&qp->own->posted, posted + 1, memory_order_release);
    return 0;
}

int qp_post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct loopback_qp *qp = (struct loopback_qp *)base;
    const bool locked = engine_enter();
    int rc = 0;

    for (; wr != NULL; wr = wr->next) {
        rc = enqueue_receive(qp, wr);
        if (unlikely(rc != 0)) {
            *bad = wr;
            break;
        }
    }
    engine_leave(locked);
    return rc;
}

void qp_disconnect(struct loopback_qp *qp)
{
    if (qp->peer != NULL)
        munmap(qp->peer, qp->peer_size);
    qp->peer = NULL;
    qp->peer_process = NULL;
}
