/* Completion queues: what is due on the QPs attached to one, polled or told of by an event. */
#define _GNU_SOURCE
#include "loopback.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct loopback_cq *all_cqs;

static enum ibv_wc_opcode completion_opcode(uint8_t opcode)
{
    static const enum ibv_wc_opcode opcodes[] = {
        [IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
        [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
        [IBV_WR_SEND] = IBV_WC_SEND,
        [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
        [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
        [IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
        [IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
    };

    return opcodes[opcode];
}

static int poll_sends(struct loopback_qp *qp, int wanted, struct ibv_wc *wc, uint64_t now)
{
    int found = 0;

    while (found < wanted && qp->send_done != qp->send_executed) {
        const struct send_entry *entry = &qp->sends[qp->send_done & qp->send_mask];

        if (now < entry->complete)
            break;
        qp->send_done++;
        if (!entry->signalled && entry->status == IBV_WC_SUCCESS)
            continue;
        wc[found++] = (struct ibv_wc){.wr_id = entry->wr_id,
                                      .status = entry->status,
                                      .opcode = completion_opcode(entry->opcode),
                                      .byte_len = entry->byte_len,
                                      .qp_num = qp->base.qp_num};
    }
    return found;
}

static void receive_completion(struct loopback_qp *qp, const struct receive_slot *slot,
                               struct ibv_wc *wc)
{
    *wc = (struct ibv_wc){.wr_id = slot->wr_id,
                          .status = slot->status,
                          .opcode = slot->opcode,
                          .byte_len = slot->byte_len,
                          .qp_num = qp->base.qp_num,
                          .src_qp = qp->attr.dest_qp_num};
    if (slot->with_imm) {
        wc->imm_data = slot->imm_data;
        wc->wc_flags = IBV_WC_WITH_IMM;
    }
    if (unlikely(slot->status != IBV_WC_SUCCESS))
        qp_fail(qp);
}

static int poll_receives(struct loopback_qp *qp, int wanted, struct ibv_wc *wc, uint64_t now)
{
    int found = 0;

    for (; found < wanted; qp->recv_polled++) {
        const struct receive_slot *slot = slot_of(qp->own, qp->recv_polled);
        uint64_t due;

        if (qp->recv_polled == atomic_load_explicit(&qp->own->posted, memory_order_relaxed))
            break;
        due = atomic_load_explicit(&slot->due, memory_order_acquire);
        if (due != 0 && now >= due)
            receive_completion(qp, slot, &wc[found++]);
        else if (due == 0 && unlikely(qp->own->state == IBV_QPS_ERR))
            wc[found++] = (struct ibv_wc){.wr_id = slot->wr_id,
                                          .status = IBV_WC_WR_FLUSH_ERR,
                                          .opcode = IBV_WC_RECV,
                                          .qp_num = qp->base.qp_num};
        else
            break;
    }
    return found;
}

static int poll_locked(struct loopback_cq *cq, int wanted, struct ibv_wc *wc)
{
    const uint64_t now = ticks();
    int found = 0;

    for (unsigned int i = 0; i < cq->qp_count && found < wanted; i++) {
        struct loopback_qp *qp = cq->qps[(cq->turn + i) % cq->qp_count];

        if (qp->send_executed != qp->send_posted)
            qp_progress(qp, now);
        if (qp->recv_cq == cq)
            found += poll_receives(qp, wanted - found, wc + found, now);
        if (qp->send_cq == cq)
            found += poll_sends(qp, wanted - found, wc + found, now);
    }
    cq->turn = cq->turn + 1 < cq->qp_count ? cq->turn + 1 : 0;
    return found;
}

int cq_poll(struct ibv_cq *base, int wanted, struct ibv_wc *wc)
{
    const bool locked = engine_enter();
    const int found = poll_locked((struct loopback_cq *)base, wanted, wc);

    engine_leave(locked);
    return found;
}

int cq_attach(struct loopback_cq *cq, struct loopback_qp *qp)
{
    if (cq->qp_count == cq->qp_room) {
        const unsigned int room = cq->qp_room == 0 ? 8 : 2 * cq->qp_room;
        struct loopback_qp **qps = realloc(cq->qps, room * sizeof(struct loopback_qp *));

        if (qps == NULL)
            return ENOMEM;
        cq->qps = qps;
        cq->qp_room = room;
    }
    cq->qps[cq->qp_count++] = qp;
    return 0;
}

void cq_detach(struct loopback_cq *cq, struct loopback_qp *qp)
{
    unsigned int kept = 0;

    for (unsigned int i = 0; i < cq->qp_count; i++)
        if (cq->qps[i] != qp)
            cq->qps[kept++] = cq->qps[i];
    cq->qp_count = kept;
    cq->turn = 0;
}

/* ---- events ---- */

/* When the next completion that may be told of is due; UINT64_MAX: none is under way. */
static uint64_t send_due(const struct loopback_cq *cq, const struct loopback_qp *qp)
{
    for (uint64_t i = qp->send_done; i != qp->send_posted; i++) {
        const struct send_entry *entry = &qp->sends[i & qp->send_mask];

        if (entry->complete > cq->armed_at
            && (entry->status != IBV_WC_SUCCESS || (entry->signalled && !cq->solicited_only)))
            return entry->complete;
    }
    return UINT64_MAX;
}

static uint64_t receive_due(const struct loopback_cq *cq, const struct loopback_qp *qp)
{
    for (uint64_t i = qp->recv_polled; i != qp->own->posted; i++) {
        const struct receive_slot *slot = slot_of(qp->own, i);
        const uint64_t due = atomic_load_explicit(&slot->due, memory_order_acquire);

        if (due == 0)
            return qp->own->state == IBV_QPS_ERR ? 0 : UINT64_MAX;
        if (due > cq->armed_at
            && (slot->solicited || slot->status != IBV_WC_SUCCESS || !cq->solicited_only))
            return due;
    }
    return UINT64_MAX;
}

uint64_t cq_next_due(const struct loopback_cq *cq)
{
    uint64_t next = UINT64_MAX;

    for (unsigned int i = 0; i < cq->qp_count; i++) {
        const struct loopback_qp *qp = cq->qps[i];
        const uint64_t sends = qp->send_cq == cq ? send_due(cq, qp) : UINT64_MAX;
        const uint64_t receives = qp->recv_cq == cq ? receive_due(cq, qp) : UINT64_MAX;

        next = sends < next ? sends : next;
        next = receives < next ? receives : next;
    }
    return next;
}

int cq_notify(struct ibv_cq *base, int solicited_only)
{
    struct loopback_cq *cq = (struct loopback_cq *)base;
    bool locked;

    if (base->channel == NULL)
        return EINVAL;
    locked = engine_enter();
    cq->solicited_only = solicited_only != 0;
    cq->armed = true;
    cq->armed_at = ticks();
    engine_leave(locked);
    engine_watch(true);
    return 0;
}

struct loopback_channel {
    struct ibv_comp_channel base;
    int write_fd;
};

LOOPBACK_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct loopback_channel *channel = calloc(1, sizeof(*channel));
    int fds[2];

    if (channel == NULL)
        return NULL;
    if (pipe2(fds, O_CLOEXEC) != 0) {
        free(channel);
        return NULL;
    }
    channel->base.context = context;
    channel->base.fd = fds[0];
    channel->write_fd = fds[1];
    return &channel->base;
}

LOOPBACK_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *base)
{
    struct loopback_channel *channel = (struct loopback_channel *)base;

    if (base->refcnt > 0)
        return EBUSY;
    close(base->fd);
    close(channel->write_fd);
    free(channel);
    return 0;
}

/* Tells the channel of the CQ; the engine calls it for an armed CQ with something due. */
void cq_signal(struct loopback_cq *cq)
{
    const struct loopback_channel *channel = (struct loopback_channel *)cq->base.channel;

    cq->armed = false;
    if (write(channel->write_fd, &cq, sizeof(cq)) != (ssize_t)sizeof(cq))
        abort();
}

LOOPBACK_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
                                     void **cq_context)
{
    struct loopback_cq *signalled;

    if (read(channel->fd, &signalled, sizeof(signalled)) != (ssize_t)sizeof(signalled))
        return -1;
    signalled->events++;
    *cq = &signalled->base;
    *cq_context = signalled->base.cq_context;
    return 0;
}

LOOPBACK_EXPORT void ibv_ack_cq_events(struct ibv_cq *base, unsigned int count)
{
    struct loopback_cq *cq = (struct loopback_cq *)base;

    pthread_mutex_lock(&base->mutex);
    base->comp_events_completed += count;
    cq->events -= count;
    pthread_mutex_unlock(&base->mutex);
}

/* ---- create, resize, destroy ---- */

static struct loopback_cq *create(struct ibv_context *context, int cqe, void *cq_context,
                                  struct ibv_comp_channel *channel, int vector)
{
    static uint32_t next_handle;
    struct loopback_cq *cq = NULL;
    bool locked;

    if (cqe < 1 || vector < 0 || vector >= context->num_comp_vectors)
        errno = EINVAL;
    else
        cq = calloc(1, sizeof(*cq));
    if (cq == NULL)
        return NULL;
    cq->base.context = context;
    cq->base.channel = channel;
    cq->base.cq_context = cq_context;
    cq->base.cqe = cqe;
    pthread_mutex_init(&cq->base.mutex, NULL);
    pthread_cond_init(&cq->base.cond, NULL);
    locked = engine_enter();
    cq->base.handle = ++next_handle;
    if (channel != NULL)
        channel->refcnt++;
    cq->next = all_cqs;
    all_cqs = cq;
    engine_leave(locked);
    return cq;
}

LOOPBACK_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
                                             void *cq_context, struct ibv_comp_channel *channel,
                                             int vector)
{
    struct loopback_cq *cq = create(context, cqe, cq_context, channel, vector);

    return cq == NULL ? NULL : &cq->base;
}

LOOPBACK_EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
    if (cqe < 1)
        return EINVAL;
    cq->cqe = cqe; /* the completions lie with the QPs, so there is nothing to move */
    return 0;
}

LOOPBACK_EXPORT int ibv_destroy_cq(struct ibv_cq *base)
{
    struct loopback_cq *cq = (struct loopback_cq *)base;
    struct loopback_cq **link = &all_cqs;
    bool locked;

    if (cq->qp_count > 0)
        return EBUSY;
    locked = engine_enter();
    while (*link != cq)
        link = &(*link)->next;
    *link = cq->next;
    if (base->channel != NULL)
        base->channel->refcnt--;
    engine_leave(locked);
    free(cq->qps);
    free(cq);
    return 0;
}

/* ---- the extended reader ---- */

static int next_poll(struct ibv_cq_ex *ex)
{
    struct loopback_cq *cq = (struct loopback_cq *)ex;

    if (cq_poll(&cq->base, 1, &cq->current) == 0)
        return ENOENT;
    ex->status = cq->current.status;
    ex->wr_id = cq->current.wr_id;
    return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
    return attr->comp_mask != 0 ? EINVAL : next_poll(ex);
}

static void end_poll(struct ibv_cq_ex *ex)
{
    (void)ex;
}

#define READER(type, name, field)                                                                  \
    static type name(struct ibv_cq_ex *ex)                                                         \
    {                                                                                              \
        return ((struct loopback_cq *)ex)->current.field;                                          \
    }

READER(enum ibv_wc_opcode, read_opcode, opcode)
READER(uint32_t, read_vendor_err, vendor_err)
READER(uint32_t, read_byte_len, byte_len)
READER(__be32, read_imm_data, imm_data)
READER(uint32_t, read_qp_num, qp_num)
READER(uint32_t, read_src_qp, src_qp)
READER(unsigned int, read_wc_flags, wc_flags)
READER(uint32_t, read_slid, slid)
READER(uint8_t, read_sl, sl)
READER(uint8_t, read_dlid_path_bits, dlid_path_bits)

struct ibv_cq_ex *cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *init)
{
    struct loopback_cq *cq;

    if (init->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS
        || init->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    cq = create(context, (int)init->cqe, init->cq_context, init->channel, (int)init->comp_vector);
    if (cq == NULL)
        return NULL;
    cq->ex.start_poll = start_poll;
    cq->ex.next_poll = next_poll;
    cq->ex.end_poll = end_poll;
    cq->ex.read_opcode = read_opcode;
    cq->ex.read_vendor_err = read_vendor_err;
    cq->ex.read_byte_len = read_byte_len;
    cq->ex.read_imm_data = read_imm_data;
    cq->ex.read_qp_num = read_qp_num;
    cq->ex.read_src_qp = read_src_qp;
    cq->ex.read_wc_flags = read_wc_flags;
    cq->ex.read_slid = read_slid;
    cq->ex.read_sl = read_sl;
    cq->ex.read_dlid_path_bits = read_dlid_path_bits;
    return &cq->ex;
}
