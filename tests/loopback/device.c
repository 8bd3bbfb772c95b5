/* The device, its port and GIDs, protection domains, address handles, and what it does not have. */
#define _GNU_SOURCE
#include "loopback.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define GID_TABLE_LENGTH 16
#define MAX_DEVICES 16u
#define COMP_VECTORS 4
#define DEFAULT_PKEY 0xffff

struct loopback_context {
    struct verbs_context verbs; /* ends with the struct ibv_context that callers see */
};

static struct ibv_device devices[MAX_DEVICES];

/* ---- the list ---- */

static void name_device(unsigned int index)
{
    struct ibv_device *device = &devices[index];

    device->node_type = IBV_NODE_CA;
    device->transport_type = IBV_TRANSPORT_IB;
    snprintf(device->name, sizeof(device->name), "loop%u", index);
    snprintf(device->dev_name, sizeof(device->dev_name), "uverbs%u", index);
    snprintf(device->dev_path, sizeof(device->dev_path), "/sys/class/infiniband_verbs/uverbs%u",
             index);
    snprintf(device->ibdev_path, sizeof(device->ibdev_path), "/sys/class/infiniband/loop%u", index);
}

LOOPBACK_EXPORT struct ibv_device **ibv_get_device_list(int *count)
{
    const unsigned int have = fabric_devices();
    struct ibv_device **list = calloc(have + 1, sizeof(struct ibv_device *));

    if (list == NULL)
        return NULL;
    for (unsigned int i = 0; i < have; i++) {
        name_device(i);
        list[i] = &devices[i];
    }
    if (count != NULL)
        *count = (int)have;
    return list;
}

LOOPBACK_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

LOOPBACK_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

LOOPBACK_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
    return (int)(device - devices);
}

static uint64_t guid_of(unsigned int device)
{
    return htobe64(0x020000fffe000001ull + device); /* of a locally administered MAC address */
}

LOOPBACK_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
    return guid_of((unsigned int)(device - devices));
}

unsigned int device_index(const struct ibv_context *context)
{
    return (unsigned int)(context->device - devices);
}

/* ---- open, close ---- */

LOOPBACK_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct loopback_context *context;
    struct ibv_context *base;
    int rc = fabric_open();

    if (rc != 0) {
        fprintf(stderr, "loopback: %s: %s\n", fabric.directory, strerror(rc));
        errno = rc;
        return NULL;
    }
    context = calloc(1, sizeof(*context));
    if (context == NULL)
        return NULL;
    context->verbs = device_ops;
    context->verbs.sz = sizeof(struct verbs_context);
    base = &context->verbs.context;
    base->device = device;
    base->ops.poll_cq = cq_poll;
    base->ops.req_notify_cq = cq_notify;
    base->ops.post_send = qp_post_send;
    base->ops.post_recv = qp_post_recv;
    base->cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    base->async_fd = eventfd(0, EFD_CLOEXEC);
    base->num_comp_vectors = COMP_VECTORS;
    base->abi_compat = __VERBS_ABI_IS_EXTENDED;
    pthread_mutex_init(&base->mutex, NULL);
    return base;
}

LOOPBACK_EXPORT int ibv_close_device(struct ibv_context *base)
{
    close(base->cmd_fd);
    close(base->async_fd);
    free((char *)base - offsetof(struct loopback_context, verbs.context));
    return 0;
}

/* ---- what it is ---- */

LOOPBACK_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    const uint64_t guid = guid_of(device_index(context));

    *attr = (struct ibv_device_attr){
        .fw_ver = "1.0.0",
        .node_guid = guid,
        .sys_image_guid = guid,
        .max_mr_size = UINT64_MAX,
        .page_size_cap = 0xfffff000,
        .hw_ver = 1,
        .max_qp = 1024,
        .max_qp_wr = LOOPBACK_MAX_WR,
        .device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_PORT_ACTIVE_EVENT,
        .max_sge = LOOPBACK_MAX_SGE,
        .max_sge_rd = LOOPBACK_MAX_SGE,
        .max_cq = 1024,
        .max_cqe = 1 << 22,
        .max_mr = LOOPBACK_KEYS,
        .max_pd = 1024,
        .max_qp_rd_atom = 16,
        .max_res_rd_atom = 1024 * 16,
        .max_qp_init_rd_atom = 16,
        .atomic_cap = IBV_ATOMIC_HCA,
        .max_ah = 1024,
        .max_pkeys = 1,
        .local_ca_ack_delay = 16,
        .phys_port_cnt = 1,
    };
    return 0;
}

static int query_device_ex(struct ibv_context *context,
                           const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size)
{
    struct ibv_device_attr_ex all = {.phys_port_cnt_ex = 1};

    (void)input;
    ibv_query_device(context, &all.orig_attr);
    memcpy(attr, &all, size < sizeof(all) ? size : sizeof(all));
    return 0;
}

/* The width and speed codes whose product comes nearest to the rate. */
static void set_rate(struct ibv_port_attr *attr)
{
    static const struct {
        double gbit_s;
        uint8_t width;
        uint8_t speed;
    } rates[] = {{10, 1, 4},  {25, 1, 32},   {40, 2, 4},    {50, 1, 64},
                 {100, 2, 32}, {200, 2, 64}, {400, 2, 128}, {800, 4, 128}};
    const double rate = fabric_gbit_s();

    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        attr->active_width = rates[i].width;
        attr->active_speed = rates[i].speed;
        if (rate > 0 && rate <= rates[i].gbit_s)
            break;
    }
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                      size_t size)
{
    struct ibv_port_attr all = {
        .state = IBV_PORT_ACTIVE,
        .max_mtu = IBV_MTU_4096,
        .active_mtu = IBV_MTU_4096,
        .gid_tbl_len = GID_TABLE_LENGTH,
        .port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
        .max_msg_sz = 0x7fffffff,
        .pkey_tbl_len = 1,
        .max_vl_num = 1,
        .phys_state = 5, /* link up */
        .link_layer = IBV_LINK_LAYER_ETHERNET,
    };

    (void)context;
    if (port != 1)
        return EINVAL;
    set_rate(&all);
    memcpy(attr, &all, size < sizeof(all) ? size : sizeof(all));
    return 0;
}

#undef ibv_query_port
LOOPBACK_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port,
                                   struct _compat_ibv_port_attr *attr)
{
    /* Callers of this entry know the struct up to `flags`, and have zeroed what follows. */
    return query_port(context, port, (struct ibv_port_attr *)attr,
                      offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* ---- GIDs: 0 link-local and RoCE v1, 1 an IPv4 address and RoCE v2 ---- */

void device_gids(unsigned int device, union ibv_gid gids[2])
{
    memset(gids, 0, 2 * sizeof(gids[0]));
    gids[0].global.subnet_prefix = htobe64(0xfe80000000000000ull);
    gids[0].global.interface_id = guid_of(device);
    gids[1].global.interface_id = htobe64(0xffffc6120001ull + device); /* 198.18.0.1 + device */
}

LOOPBACK_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
                                  union ibv_gid *gid)
{
    union ibv_gid gids[2];

    if (port != 1 || index < 0 || index >= GID_TABLE_LENGTH) {
        errno = EINVAL;
        return -1;
    }
    device_gids(device_index(context), gids);
    memset(gid, 0, sizeof(*gid));
    if (index < 2)
        *gid = gids[index];
    return 0;
}

LOOPBACK_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                                      struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
    struct ibv_gid_entry all = {.gid_index = index,
                                .port_num = port,
                                .gid_type = index == 0 ? IBV_GID_TYPE_ROCE_V1
                                                       : IBV_GID_TYPE_ROCE_V2,
                                .ndev_ifindex = 1};

    if (flags != 0 || ibv_query_gid(context, (uint8_t)port, (int)index, &all.gid) != 0)
        return EINVAL;
    if (index > 1)
        return ENODATA;
    memcpy(entry, &all, size < sizeof(all) ? size : sizeof(all));
    return 0;
}

LOOPBACK_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context,
                                             struct ibv_gid_entry *entries, size_t room,
                                             uint32_t flags, size_t size)
{
    ssize_t count = 0;

    if (flags != 0)
        return -EINVAL;
    for (; count < 2 && (size_t)count < room; count++)
        _ibv_query_gid_ex(context, 1, (uint32_t)count,
                          (struct ibv_gid_entry *)(void *)((char *)entries + (size_t)count * size),
                          0, size);
    return count;
}

/* Private to rdma-core, yet used by its tools and by pyverbs: 0 for InfiniBand and v1, 1 for v2. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);
LOOPBACK_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port,
                                       unsigned int index, int *type)
{
    (void)context;
    if (port != 1 || index >= GID_TABLE_LENGTH) {
        errno = EINVAL;
        return -1;
    }
    *type = index == 0 ? 0 : 1;
    return 0;
}

LOOPBACK_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index,
                                   __be16 *pkey)
{
    (void)context;
    if (port != 1 || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = htons(DEFAULT_PKEY);
    return 0;
}

LOOPBACK_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
    (void)context;
    return port == 1 && pkey == htons(DEFAULT_PKEY) ? 0 : -1;
}

/* ---- protection domains and address handles ---- */

LOOPBACK_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    static _Atomic uint32_t next_handle;
    struct ibv_pd *pd = calloc(1, sizeof(*pd));

    if (pd == NULL)
        return NULL;
    pd->context = context;
    pd->handle = atomic_fetch_add(&next_handle, 1) + 1;
    return pd;
}

LOOPBACK_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
    free(pd);
    return 0;
}

LOOPBACK_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    struct ibv_ah *ah;

    if (!attr->is_global || attr->port_num != 1) {
        errno = EINVAL;
        return NULL;
    }
    ah = calloc(1, sizeof(*ah));
    if (ah == NULL)
        return NULL;
    ah->context = pd->context;
    ah->pd = pd;
    return ah;
}

LOOPBACK_EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
    free(ah);
    return 0;
}

/* ---- what it does not have ---- */

#define ABSENT_POINTER(type, name, ...)                                                            \
    LOOPBACK_EXPORT type *name(__VA_ARGS__)                                                        \
    {                                                                                              \
        errno = EOPNOTSUPP;                                                                        \
        return NULL;                                                                               \
    }
#define ABSENT(name, ...)                                                                          \
    LOOPBACK_EXPORT int name(__VA_ARGS__)                                                          \
    {                                                                                              \
        return EOPNOTSUPP;                                                                         \
    }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
ABSENT_POINTER(struct ibv_srq, ibv_create_srq, struct ibv_pd *pd, struct ibv_srq_init_attr *init)
ABSENT_POINTER(struct ibv_ah, ibv_create_ah_from_wc, struct ibv_pd *pd, struct ibv_wc *wc,
               struct ibv_grh *grh, uint8_t port)
ABSENT_POINTER(struct ibv_mr, ibv_reg_dmabuf_mr, struct ibv_pd *pd, uint64_t offset, size_t length,
               uint64_t iova, int fd, int access)
ABSENT_POINTER(struct ibv_context, ibv_import_device, int cmd_fd)
ABSENT_POINTER(struct ibv_pd, ibv_import_pd, struct ibv_context *context, uint32_t handle)
ABSENT_POINTER(struct ibv_mr, ibv_import_mr, struct ibv_pd *pd, uint32_t handle)
ABSENT_POINTER(struct ibv_dm, ibv_import_dm, struct ibv_context *context, uint32_t handle)
ABSENT(ibv_rereg_mr, struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *address, size_t length,
       int access)
ABSENT(ibv_modify_srq, struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
ABSENT(ibv_query_srq, struct ibv_srq *srq, struct ibv_srq_attr *attr)
ABSENT(ibv_destroy_srq, struct ibv_srq *srq)
ABSENT(ibv_attach_mcast, struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
ABSENT(ibv_detach_mcast, struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
ABSENT(ibv_set_ece, struct ibv_qp *qp, struct ibv_ece *ece)
ABSENT(ibv_query_ece, struct ibv_qp *qp, struct ibv_ece *ece)
#pragma GCC diagnostic pop

const struct verbs_context device_ops = {
    .query_port = query_port,
    .query_device_ex = query_device_ex,
    .create_qp_ex = queue_create_qp_ex,
    .create_cq_ex = cq_create_ex,
};
