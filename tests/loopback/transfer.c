/* The operations: one posted entry's bytes and its effect on the peer's receives. */
#include "loopback.h"

#define FOREVER_NS 1e18

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
int qp_local_spans(const struct loopback_qp *qp, struct send_entry *entry, unsigned int access,
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

bool qp_remote_span(const struct loopback_qp *qp, const struct send_entry *entry,
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
    const double once_ns = peer_rnr_ns(qp->peer->min_rnr_timer);
    const double limit_ns = limited ? once_ns * (qp->attr.rnr_retry + 1) : FOREVER_NS;

    if (filled >= qp->seen_posted)
        qp->seen_posted = atomic_load_explicit(&qp->peer->posted, memory_order_acquire);
    if (unlikely(filled >= qp->seen_posted))
        return stall(qp, entry, now, limit_ns, IBV_WC_RNR_RETRY_EXC_ERR);
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

static enum ibv_wc_status receive_spans(const struct loopback_qp *qp,
                                        const struct send_entry *entry,
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
    const int count = qp_local_spans(qp, entry, 0, from);

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
    const int count = qp_local_spans(qp, entry, 0, from);

    if (count < 0)
        return fail(qp, entry, now, IBV_WC_LOC_PROT_ERR);
    if (!qp_remote_span(qp, entry, IBV_ACCESS_REMOTE_WRITE, &to))
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
    const int count = qp_local_spans(qp, entry, IBV_ACCESS_LOCAL_WRITE, to);
    size_t offset = 0;

    if (count < 0)
        return fail(qp, entry, now, IBV_WC_LOC_PROT_ERR);
    if (!qp_remote_span(qp, entry, IBV_ACCESS_REMOTE_READ, &from))
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
    if (qp_local_spans(qp, entry, IBV_ACCESS_LOCAL_WRITE, to) != 1)
        return fail(qp, entry, now, IBV_WC_LOC_PROT_ERR);
    if (entry->remote_addr % sizeof(old) != 0)
        return refuse(qp, entry, now, IBV_WC_REM_INV_REQ_ERR);
    if (!qp_remote_span(qp, entry, IBV_ACCESS_REMOTE_ATOMIC, &word))
        return refuse(qp, entry, now, IBV_WC_REM_ACCESS_ERR);
    if (!change_word(qp, entry, &word, &old))
        return refuse(qp, entry, now, IBV_WC_REM_OP_ERR);
    memcpy(to[0].direct, &old, sizeof(old));
    return STEP_DONE;
}

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

enum step qp_execute(struct loopback_qp *qp, struct send_entry *entry, uint64_t now)
{
    if (unlikely(!peer_answers(qp, now)))
        return stall(qp, entry, now, peer_retry_ns(qp), IBV_WC_RETRY_EXC_ERR);
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
