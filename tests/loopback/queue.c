/* QPs: creation, the state machine of an RC QP, query, destruction. */
#include "loopback.h"

#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <sys/mman.h>

#define LEAST_DEPTH 16

/* The depth a queue gets: as with hardware, more than asked for rather than just that. */
static uint32_t depth_for(uint32_t at_least)
{
    uint32_t size = LEAST_DEPTH;

    while (size < at_least)
        size *= 2;
    return size;
}

static int check_init(const struct ibv_qp_init_attr_ex *init)
{
    const struct ibv_qp_cap *cap = &init->cap;

    if (init->qp_type != IBV_QPT_RC || init->srq != NULL)
        return EOPNOTSUPP;
    if (init->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
        return EOPNOTSUPP;
    if (!(init->comp_mask & IBV_QP_INIT_ATTR_PD) || init->send_cq == NULL || init->recv_cq == NULL
        || cap->max_send_wr > LOOPBACK_MAX_WR || cap->max_recv_wr > LOOPBACK_MAX_WR
        || cap->max_send_sge > LOOPBACK_MAX_SGE || cap->max_recv_sge > LOOPBACK_MAX_SGE
        || cap->max_inline_data > LOOPBACK_MAX_INLINE)
        return EINVAL;
    return 0;
}

static int create_shared(struct loopback_qp *qp, const struct ibv_pd *pd)
{
    const uint32_t slots = qp->max_recv_wr;
    const size_t stride = (sizeof(struct receive_slot)
                           + qp->init.cap.max_recv_sge * sizeof(struct ibv_sge) + 63) & ~63ul;
    char name[40];

    qp->base.qp_num = atomic_fetch_add(&fabric.shared->next_qp_num, 1) & 0xffffff;
    fabric_qp_name(qp->base.qp_num, fabric.self->pid, name);
    qp->own_size = sizeof(struct qp_shared) + slots * stride;
    qp->own = fabric_create(name, qp->own_size);
    if (qp->own == NULL)
        return ENOMEM;
    qp->own->qp_num = qp->base.qp_num;
    qp->own->device = device_index(pd->context);
    qp->own->pd = pd->handle;
    qp->own->type = qp->base.qp_type;
    qp->own->slot_mask = slots - 1;
    qp->own->slot_stride = (uint32_t)stride;
    snprintf(qp->own->process, sizeof(qp->own->process), "%s", fabric.self->name);
    qp->own->state = IBV_QPS_RESET;
    fabric.shared->qp_owner[qp->base.qp_num % LOOPBACK_QPS] = fabric.self->pid;
    return 0;
}

static void release(struct loopback_qp *qp)
{
    char name[40];

    if (qp->own != NULL) {
        fabric.shared->qp_owner[qp->base.qp_num % LOOPBACK_QPS] = 0;
        atomic_store_explicit(&qp->own->state, IBV_QPS_RESET, memory_order_release);
        fabric_qp_name(qp->base.qp_num, fabric.self->pid, name);
        fabric_unlink(name);
        munmap(qp->own, qp->own_size);
    }
    qp_disconnect(qp);
    free(qp->sends);
    free(qp->drafts);
    free(qp);
}

static void set_up(struct loopback_qp *qp, const struct ibv_qp_init_attr_ex *init)
{
    qp->base.context = init->pd->context;
    qp->base.qp_context = init->qp_context;
    qp->base.pd = init->pd;
    qp->base.send_cq = init->send_cq;
    qp->base.recv_cq = init->recv_cq;
    qp->base.qp_type = init->qp_type;
    qp->base.state = IBV_QPS_RESET;
    pthread_mutex_init(&qp->base.mutex, NULL);
    pthread_cond_init(&qp->base.cond, NULL);
    qp->send_cq = (struct loopback_cq *)init->send_cq;
    qp->recv_cq = (struct loopback_cq *)init->recv_cq;
    qp->init = (struct ibv_qp_init_attr){.qp_context = init->qp_context,
                                         .send_cq = init->send_cq,
                                         .recv_cq = init->recv_cq,
                                         .cap = init->cap,
                                         .qp_type = init->qp_type,
                                         .sq_sig_all = init->sq_sig_all};
    qp->max_send_wr = depth_for(init->cap.max_send_wr);
    qp->max_recv_wr = depth_for(init->cap.max_recv_wr);
    qp->init.cap.max_send_wr = qp->max_send_wr;
    qp->init.cap.max_recv_wr = qp->max_recv_wr;
    qp->send_mask = qp->max_send_wr - 1;
    qp->attr.qp_state = IBV_QPS_RESET;
    qp->attr.cap = qp->init.cap;
}

static int attach(struct loopback_qp *qp)
{
    int rc = cq_attach(qp->send_cq, qp);

    if (rc == 0 && qp->recv_cq != qp->send_cq)
        rc = cq_attach(qp->recv_cq, qp);
    if (rc != 0) {
        cq_detach(qp->send_cq, qp);
        cq_detach(qp->recv_cq, qp);
        return rc;
    }
    qp->next = all_qps;
    all_qps = qp;
    return 0;
}

struct ibv_qp *queue_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init)
{
    struct loopback_qp *qp = NULL;
    int rc = check_init(init);
    bool locked;

    (void)context;
    if (rc == 0) {
        qp = calloc(1, sizeof(*qp));
        rc = qp == NULL ? ENOMEM : 0;
    }
    if (rc == 0) {
        set_up(qp, init);
        qp->sends = calloc(qp->send_mask + 1, sizeof(*qp->sends));
        rc = qp->sends == NULL ? ENOMEM : create_shared(qp, init->pd);
    }
    if (rc == 0 && (init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
        rc = draft_open(qp, init->send_ops_flags);
    locked = engine_enter();
    if (rc == 0)
        rc = attach(qp);
    engine_leave(locked);
    if (rc == 0) {
        init->cap = qp->init.cap;
        return &qp->base;
    }
    if (qp != NULL)
        release(qp);
    errno = rc;
    return NULL;
}

LOOPBACK_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    struct ibv_qp_init_attr_ex ex = {.qp_context = init->qp_context,
                                     .send_cq = init->send_cq,
                                     .recv_cq = init->recv_cq,
                                     .srq = init->srq,
                                     .cap = init->cap,
                                     .qp_type = init->qp_type,
                                     .sq_sig_all = init->sq_sig_all,
                                     .comp_mask = IBV_QP_INIT_ATTR_PD,
                                     .pd = pd};
    struct ibv_qp *qp = queue_create_qp_ex(pd->context, &ex);

    init->cap = ex.cap;
    return qp;
}

LOOPBACK_EXPORT int ibv_destroy_qp(struct ibv_qp *base)
{
    struct loopback_qp *qp = (struct loopback_qp *)base;
    struct loopback_qp **link = &all_qps;
    const bool locked = engine_enter();

    while (*link != qp)
        link = &(*link)->next;
    *link = qp->next;
    cq_detach(qp->send_cq, qp);
    cq_detach(qp->recv_cq, qp);
    release(qp);
    engine_leave(locked);
    return 0;
}

/* ---- states ---- */

static void clear(struct loopback_qp *qp)
{
    qp_disconnect(qp);
    qp->send_done = qp->send_executed = qp->send_posted = 0;
    qp->wire_free = qp->response_free = qp->last_complete = 0;
    qp->stalled_since = qp->connect_tried = qp->seen_posted = 0;
    qp->recv_polled = 0;
    qp->own->posted = 0;
    qp->own->filled = 0;
    qp->own->dest_qp_num = 0;
}

/* The attributes a state change of an RC QP needs; -1 where there is no such change. */
static int required_mask(enum ibv_qp_state from, enum ibv_qp_state to)
{
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
        return IBV_QP_STATE;
    if (to == IBV_QPS_INIT && from == IBV_QPS_RESET)
        return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    if (to == IBV_QPS_RTR && from == IBV_QPS_INIT)
        return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
               | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    if (to == IBV_QPS_RTS && from == IBV_QPS_RTR)
        return IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN
               | IBV_QP_MAX_QP_RD_ATOMIC;
    return from == to && (to == IBV_QPS_INIT || to == IBV_QPS_RTS) ? IBV_QP_STATE : -1;
}

static int check_values(const struct ibv_qp_attr *attr, int mask)
{
    if ((mask & IBV_QP_PORT) && attr->port_num != 1)
        return EINVAL;
    if ((mask & IBV_QP_PKEY_INDEX) && attr->pkey_index != 0)
        return EINVAL;
    if ((mask & IBV_QP_AV)
        && (!attr->ah_attr.is_global || attr->ah_attr.port_num != 1
            || attr->ah_attr.grh.sgid_index > 1))
        return EINVAL;
    if ((mask & IBV_QP_PATH_MTU) && (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096))
        return EINVAL;
    return 0;
}

static void take_values(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
#define TAKE(bit, field)                                                                           \
    if (mask & (bit))                                                                              \
        to->field = from->field
    TAKE(IBV_QP_STATE, qp_state);
    TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
    TAKE(IBV_QP_PKEY_INDEX, pkey_index);
    TAKE(IBV_QP_PORT, port_num);
    TAKE(IBV_QP_AV, ah_attr);
    TAKE(IBV_QP_PATH_MTU, path_mtu);
    TAKE(IBV_QP_DEST_QPN, dest_qp_num);
    TAKE(IBV_QP_RQ_PSN, rq_psn);
    TAKE(IBV_QP_SQ_PSN, sq_psn);
    TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
    TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
    TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
    TAKE(IBV_QP_TIMEOUT, timeout);
    TAKE(IBV_QP_RETRY_CNT, retry_cnt);
    TAKE(IBV_QP_RNR_RETRY, rnr_retry);
#undef TAKE
}

static void enter_state(struct loopback_qp *qp)
{
    qp->own->access = qp->attr.qp_access_flags;
    qp->own->min_rnr_timer = qp->attr.min_rnr_timer;
    qp->own->dest_qp_num = qp->attr.dest_qp_num;
    if (qp->attr.qp_state == IBV_QPS_RESET)
        clear(qp);
    atomic_store_explicit(&qp->own->state, qp->attr.qp_state, memory_order_release);
    if (qp->attr.qp_state == IBV_QPS_RTR || qp->attr.qp_state == IBV_QPS_RTS)
        qp_connect(qp, ticks()); /* now if the peer is there, else with the first message */
}

LOOPBACK_EXPORT int ibv_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
    struct loopback_qp *qp = (struct loopback_qp *)base;
    const enum ibv_qp_state from = (enum ibv_qp_state)qp->own->state;
    const int required = required_mask(from, mask & IBV_QP_STATE ? attr->qp_state : from);
    bool locked;

    if (required < 0 || (required & ~IBV_QP_STATE & ~mask) != 0 || check_values(attr, mask) != 0)
        return EINVAL;
    locked = engine_enter();
    take_values(&qp->attr, attr, mask);
    enter_state(qp);
    base->state = qp->attr.qp_state;
    engine_leave(locked);
    return 0;
}

LOOPBACK_EXPORT int ibv_query_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask,
                                 struct ibv_qp_init_attr *init)
{
    struct loopback_qp *qp = (struct loopback_qp *)base;

    (void)mask;
    qp->attr.qp_state = (enum ibv_qp_state)qp->own->state;
    qp->attr.cur_qp_state = qp->attr.qp_state;
    base->state = qp->attr.qp_state;
    *attr = qp->attr;
    *init = qp->init;
    return 0;
}

LOOPBACK_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op,
                                               uint32_t flags)
{
    (void)qp;
    (void)op;
    (void)flags;
    return 0;
}
