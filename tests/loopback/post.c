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
 *  - a write on an idle queue (all before it has completed): the post itself waits until the write
 *    is due, so that a ping-pong over memory takes the delay whether or not its caller polls;
 *  - a write behind others: any later post or poll of the initiator, or the engine after a while.
 * Nothing overtakes what was posted before it.
 */
#include "loopback.h"

#include <errno.h>

#define LAST_LINE 64u /* bytes of a write that are not shown before it is due */

/* ---- order and times ---- */

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

            if (qp_execute(qp, entry, now) == STEP_WAIT)
                return;
            if (entry->status == IBV_WC_SUCCESS && now > arrive)
                shift(qp, entry, now);
        } else if (qp_execute(qp, entry, now) == STEP_WAIT) {
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
        || qp_local_spans(qp, entry, 0, from) != 1
        || !qp_remote_span(qp, entry, IBV_ACCESS_REMOTE_WRITE, &to) || to.direct == NULL)
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
