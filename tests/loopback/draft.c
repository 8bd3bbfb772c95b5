/* The extended send interface (ibv_wr_*): collects work requests and posts them as a list. */
#include "loopback.h"

#include <errno.h>
#include <stdlib.h>

static struct wr_draft *current(struct ibv_qp_ex *ex)
{
    struct loopback_qp *qp = (struct loopback_qp *)ex;

    return &qp->drafts[qp->draft_count - 1];
}

static struct wr_draft *begin(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
    struct loopback_qp *qp = (struct loopback_qp *)ex;
    struct wr_draft *draft;

    if (qp->draft_count == qp->max_send_wr)
        qp->draft_error = ENOMEM; /* the last one is written over; wr_complete posts none */
    else
        qp->draft_count++;
    draft = current(ex);
    draft->wr = (struct ibv_send_wr){.wr_id = ex->wr_id,
                                     .sg_list = draft->sge,
                                     .opcode = opcode,
                                     .send_flags = ex->wr_flags & ~(unsigned int)IBV_SEND_INLINE};
    return draft;
}

static void begin_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey,
                       uint64_t address, __be32 imm_data)
{
    struct wr_draft *draft = begin(ex, opcode);

    draft->wr.wr.rdma.rkey = rkey;
    draft->wr.wr.rdma.remote_addr = address;
    draft->wr.imm_data = imm_data;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address)
{
    begin_rdma(ex, IBV_WR_RDMA_WRITE, rkey, address, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address, __be32 imm)
{
    begin_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address, imm);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address)
{
    begin_rdma(ex, IBV_WR_RDMA_READ, rkey, address, 0);
}

static void begin_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey,
                         uint64_t address)
{
    struct wr_draft *draft = begin(ex, opcode);

    draft->wr.wr.atomic.rkey = rkey;
    draft->wr.wr.atomic.remote_addr = address;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address,
                              uint64_t compare, uint64_t swap)
{
    begin_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address);
    current(ex)->wr.wr.atomic.compare_add = compare;
    current(ex)->wr.wr.atomic.swap = swap;
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t address, uint64_t add)
{
    begin_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address);
    current(ex)->wr.wr.atomic.compare_add = add;
}

static void wr_send(struct ibv_qp_ex *ex)
{
    begin(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm_data)
{
    begin(ex, IBV_WR_SEND_WITH_IMM)->wr.imm_data = imm_data;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t address, uint32_t length)
{
    struct wr_draft *draft = current(ex);

    draft->sge[0] = (struct ibv_sge){.addr = address, .length = length, .lkey = lkey};
    draft->wr.num_sge = length > 0;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_sge *list)
{
    struct wr_draft *draft = current(ex);

    if (count > LOOPBACK_MAX_SGE) {
        ((struct loopback_qp *)ex)->draft_error = EINVAL;
        return;
    }
    memcpy(draft->sge, list, count * sizeof(*list));
    draft->wr.num_sge = (int)count;
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t count,
                                    const struct ibv_data_buf *list)
{
    struct wr_draft *draft = current(ex);
    size_t total = 0;

    for (size_t i = 0; i < count; i++) {
        if (list[i].length > LOOPBACK_MAX_INLINE - total) {
            ((struct loopback_qp *)ex)->draft_error = EINVAL;
            return;
        }
        memcpy(draft->data + total, list[i].addr, list[i].length);
        total += list[i].length;
    }
    draft->sge[0] = (struct ibv_sge){.addr = (uintptr_t)draft->data, .length = (uint32_t)total};
    draft->wr.num_sge = 1;
    draft->wr.send_flags |= IBV_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *address, size_t length)
{
    const struct ibv_data_buf one = {.addr = address, .length = length};

    wr_set_inline_data_list(ex, 1, &one);
}

static void wr_start(struct ibv_qp_ex *ex)
{
    struct loopback_qp *qp = (struct loopback_qp *)ex;

    qp->draft_count = 0;
    qp->draft_error = 0;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
    struct loopback_qp *qp = (struct loopback_qp *)ex;
    struct ibv_send_wr *bad;

    if (qp->draft_error != 0 || qp->draft_count == 0)
        return qp->draft_error;
    for (unsigned int i = 0; i + 1 < qp->draft_count; i++)
        qp->drafts[i].wr.next = &qp->drafts[i + 1].wr;
    return qp_post_send(&qp->base, &qp->drafts[0].wr, &bad);
}

static void wr_abort(struct ibv_qp_ex *ex)
{
    wr_start(ex);
}

int draft_open(struct loopback_qp *qp, uint64_t send_ops)
{
    const uint64_t known = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
                           | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM
                           | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
                           | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

    if (send_ops & ~known)
        return EOPNOTSUPP;
    qp->drafts = calloc(qp->max_send_wr, sizeof(*qp->drafts));
    if (qp->drafts == NULL)
        return ENOMEM;
    qp->has_ops = true;
    qp->ex.wr_rdma_write = wr_rdma_write;
    qp->ex.wr_rdma_write_imm = wr_rdma_write_imm;
    qp->ex.wr_rdma_read = wr_rdma_read;
    qp->ex.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
    qp->ex.wr_atomic_fetch_add = wr_atomic_fetch_add;
    qp->ex.wr_send = wr_send;
    qp->ex.wr_send_imm = wr_send_imm;
    qp->ex.wr_set_sge = wr_set_sge;
    qp->ex.wr_set_sge_list = wr_set_sge_list;
    qp->ex.wr_set_inline_data = wr_set_inline_data;
    qp->ex.wr_set_inline_data_list = wr_set_inline_data_list;
    qp->ex.wr_start = wr_start;
    qp->ex.wr_complete = wr_complete;
    qp->ex.wr_abort = wr_abort;
    return 0;
}

LOOPBACK_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *base)
{
    struct loopback_qp *qp = (struct loopback_qp *)base;

    return qp->has_ops ? &qp->ex : NULL;
}
