/* The other end of a QP: finding it, mapping it, how long to wait for it. */
#include "loopback.h"

#include <sys/mman.h>

#define CONNECT_RETRY_NS 2e5
#define LONGEST_RETRY_NS 5e8

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

bool peer_answers(struct loopback_qp *qp, uint64_t now)
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

double peer_retry_ns(const struct loopback_qp *qp)
{
    const double once = 4096.0 * (double)(1ull << (qp->attr.timeout & 31));
    const double all = once * (qp->attr.retry_cnt + 1);

    return qp->attr.timeout == 0 || all > LONGEST_RETRY_NS ? LONGEST_RETRY_NS : all;
}

/* The code of a minimum RNR timer in hundredths of a millisecond, from the InfiniBand table. */
double peer_rnr_ns(uint32_t code)
{
    static const uint32_t units[32] = {65536, 1,    2,    3,    4,    6,     8,     12,
                                       16,    24,   32,   48,   64,   96,    128,   192,
                                       256,   384,  512,  768,  1024, 1536,  2048,  3072,
                                       4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

    return units[code & 31] * 1e4;
}

void qp_disconnect(struct loopback_qp *qp)
{
    if (qp->peer != NULL)
        munmap(qp->peer, qp->peer_size);
    qp->peer = NULL;
    qp->peer_process = NULL;
}
