/*
 * Registered memory.
 *
 * Whole pages of private anonymous memory are moved to a memory file when they are registered, so
 * that a peer can map them and a write is a copy. The rest of a region (parts of a page at its
 * ends, files, huge pages) is copied by the kernel with process_vm_readv and process_vm_writev:
 * slower and less even, but right. Deregistering the last region of such pages makes them private
 * again.
 */
#define _GNU_SOURCE
#include "loopback.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define LOOPBACK_ACCESS                                                                            \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ                     \
     | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING)

struct page_file {
    struct page_file *next;
    char *start;
    size_t length;
    ino_t inode;
    int fd;
    unsigned int regions;
};

struct loopback_mr {
    struct ibv_mr base;
    struct page_file *pages;
};

struct page_range {
    uintptr_t start;
    uintptr_t end;
    bool is_private;           /* anonymous, private, writable from start to end */
    struct page_file *file;    /* or all of it in one of our files */
    uint64_t file_offset;
};

static struct page_file *page_files;
static uint32_t generation[LOOPBACK_KEYS];
static uint32_t next_slot;

/* ---- what the pages of a range are now ---- */

static struct page_file *file_of_inode(ino_t inode)
{
    struct page_file *file = page_files;

    while (file != NULL && file->inode != inode)
        file = file->next;
    return file;
}

static void look_at_area(struct page_range *range, const char *line, uintptr_t *covered)
{
    uintptr_t start;
    uintptr_t end;
    char mode[5];
    uint64_t offset;
    uint64_t inode;

    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %*s %" SCNu64, &start, &end, mode,
               &offset, &inode) != 5
        || end <= *covered || start > *covered || *covered >= range->end)
        return;
    if (strncmp(mode, "rw", 2) != 0 || strstr(line, "[stack") != NULL)
        return;
    if (mode[3] == 'p' && inode == 0) {
        *covered = end;
    } else if (mode[3] == 's' && *covered == range->start && end >= range->end) {
        range->file = file_of_inode((ino_t)inode);
        range->file_offset = offset + (range->start - start);
    }
}

static struct page_range look_at_pages(uintptr_t start, uintptr_t end)
{
    struct page_range range = {.start = start, .end = end};
    FILE *maps = start < end ? fopen("/proc/self/maps", "re") : NULL;
    uintptr_t covered = start;
    char line[512];

    if (maps == NULL)
        return range;
    while (fgets(line, sizeof(line), maps) != NULL)
        look_at_area(&range, line, &covered);
    fclose(maps);
    range.is_private = covered >= end;
    return range;
}

/* ---- pages to and from a file ---- */

/* Puts a copy of the range's pages, mapped with `flags` from `fd`, in the range's place. */
static bool replace_pages(char *start, size_t length, int flags, int fd)
{
    char *copy = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, fd, 0);

    if (copy == MAP_FAILED)
        return false;
    memcpy(copy, start, length);
    if (mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, start) != MAP_FAILED)
        return true;
    munmap(copy, length);
    return false;
}

static struct page_file *move_to_file(char *start, size_t length)
{
    struct page_file *file = calloc(1, sizeof(*file));
    struct stat stat;

    if (file == NULL)
        return NULL;
    file->start = start;
    file->length = length;
    file->fd = memfd_create("loopback", MFD_CLOEXEC);
    if (file->fd >= 0 && ftruncate(file->fd, (off_t)length) == 0 && fstat(file->fd, &stat) == 0
        && replace_pages(start, length, MAP_SHARED, file->fd)) {
        file->inode = stat.st_ino;
        file->next = page_files;
        page_files = file;
        return file;
    }
    if (file->fd >= 0)
        close(file->fd);
    free(file);
    return NULL;
}

static void release_file(struct page_file *file)
{
    struct page_file **link = &page_files;
    const struct page_range now =
        look_at_pages((uintptr_t)file->start, (uintptr_t)file->start + file->length);

    if (--file->regions > 0)
        return;
    if (now.file == file) /* the caller has not unmapped or replaced the pages meanwhile */
        replace_pages(file->start, file->length, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    while (*link != file)
        link = &(*link)->next;
    *link = file->next;
    close(file->fd);
    free(file);
}

static struct page_file *share_pages(struct key_entry *entry, uintptr_t address, size_t length)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct page_range range =
        look_at_pages((address + page - 1) & ~(page - 1), (address + length) & ~(page - 1));

    if (range.is_private)
        range.file = move_to_file((char *)range.start, range.end - range.start);
    if (range.start >= range.end || range.file == NULL)
        return NULL;
    range.file->regions++;
    entry->memory_fd = range.file->fd;
    entry->shared_start = range.start;
    entry->shared_end = range.end;
    entry->file_offset = range.file_offset;
    return range.file;
}

/* ---- regions ---- */

static struct key_entry *free_entry(uint32_t *slot)
{
    struct key_entry *keys = fabric.self->shared->keys;

    for (uint32_t tried = 0; tried < LOOPBACK_KEYS; tried++) {
        *slot = next_slot++ % LOOPBACK_KEYS;
        if (keys[*slot].key == 0)
            return &keys[*slot];
    }
    return NULL;
}

static uint32_t new_key(uint32_t slot)
{
    const uint32_t first = ((uint32_t)getpid() * 2654435761u) >> 13; /* unlike the peer's */

    do
        generation[slot]++;
    while (((first + generation[slot]) & 0xfffffu) == 0);
    return ((first + generation[slot]) << 12) | slot;
}

static struct ibv_mr *register_memory(struct ibv_pd *pd, void *address, size_t length,
                                      uint64_t iova, unsigned int access)
{
    struct loopback_mr *mr = calloc(1, sizeof(*mr));
    struct key_entry *entry;
    uint32_t slot;
    uint32_t key;

    entry = mr == NULL ? NULL : free_entry(&slot);
    if (entry == NULL) {
        free(mr);
        errno = ENOMEM;
        return NULL;
    }
    entry->pd = pd->handle;
    entry->access = access;
    entry->memory_fd = -1;
    entry->iova = iova;
    entry->length = length;
    entry->address = (uintptr_t)address;
    entry->shared_start = 0;
    entry->shared_end = 0;
    mr->pages = share_pages(entry, (uintptr_t)address, length);
    key = new_key(slot);
    atomic_store_explicit(&entry->key, key, memory_order_release);
    mr->base = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = address, .length = length,
                               .handle = slot, .lkey = key, .rkey = key};
    return &mr->base;
}

static bool is_mapped(const void *address, size_t length)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t start = (uintptr_t)address & ~(page - 1);

    return msync((void *)start, (uintptr_t)address + length - start, MS_ASYNC) == 0;
}

LOOPBACK_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length,
                                                uint64_t iova, unsigned int access)
{
    const unsigned int remote_writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    struct ibv_mr *mr = NULL;
    bool locked;

    if (access & ~(unsigned int)LOOPBACK_ACCESS) {
        errno = EOPNOTSUPP;
    } else if (length == 0 || ((access & remote_writes) && !(access & IBV_ACCESS_LOCAL_WRITE))) {
        errno = EINVAL;
    } else if (!is_mapped(address, length)) {
        errno = EFAULT;
    } else {
        locked = engine_enter();
        mr = register_memory(pd, address, length, iova, access);
        engine_leave(locked);
    }
    return mr;
}

#undef ibv_reg_mr
LOOPBACK_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length,
                                          int access)
{
    return ibv_reg_mr_iova2(pd, address, length, (uintptr_t)address, (unsigned int)access);
}

#undef ibv_reg_mr_iova
LOOPBACK_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t length,
                                               uint64_t iova, int access)
{
    return ibv_reg_mr_iova2(pd, address, length, iova, (unsigned int)access);
}

LOOPBACK_EXPORT int ibv_dereg_mr(struct ibv_mr *base)
{
    struct loopback_mr *mr = (struct loopback_mr *)base;
    const bool locked = engine_enter();

    atomic_store_explicit(&fabric.self->shared->keys[base->handle].key, 0, memory_order_release);
    if (mr->pages != NULL)
        release_file(mr->pages);
    engine_leave(locked);
    free(mr);
    return 0;
}

/* ---- reaching it ---- */

/* Finds `length` bytes at `address` of a region; false where the key does not allow the access. */
bool memory_span(struct process *process, uint32_t key, uint32_t pd, unsigned int access,
                 uint64_t address, size_t length, struct span *span)
{
    const struct key_entry *entry = &process->shared->keys[key % LOOPBACK_KEYS];
    uint64_t place;

    if (unlikely(atomic_load_explicit(&entry->key, memory_order_acquire) != key || key == 0
                 || entry->pd != pd || (access & ~entry->access) != 0 || address < entry->iova
                 || length > entry->length || address - entry->iova > entry->length - length))
        return false;
    place = entry->address + (address - entry->iova);
    span->address = place;
    span->length = length;
    span->direct = NULL;
    if (process->is_self) {
        span->direct = (char *)(uintptr_t)place;
    } else if (place >= entry->shared_start && place + length <= entry->shared_end) {
        span->direct = process_map(process, entry);
        if (span->direct != NULL)
            span->direct += place - entry->shared_start;
    }
    return true;
}

/* Maps what a peer has registered so far, so that the first transfer need not. */
void memory_map_all(struct process *process, uint32_t pd)
{
    for (uint32_t slot = 0; slot < LOOPBACK_KEYS && !process->is_self; slot++) {
        const struct key_entry *entry = &process->shared->keys[slot];

        if (entry->key != 0 && entry->pd == pd && entry->memory_fd >= 0)
            process_map(process, entry);
    }
}

/* Copies so that whoever sees the last byte (or the last aligned word) sees all before it. */
void memory_place(char *to, const char *from, size_t length)
{
    const size_t tail = length >= 8 ? 8 : length >= 4 ? 4 : length >= 2 ? 2 : length;

    memcpy(to, from, length - tail);
    atomic_thread_fence(memory_order_release);
    to += length - tail;
    from += length - tail;
    if (tail == 8)
        memcpy(to, from, 8);
    else if (tail == 4)
        memcpy(to, from, 4);
    else if (tail == 2)
        memcpy(to, from, 2);
    else if (tail == 1)
        *to = *from;
}

bool memory_write(const struct process *process, const struct span *to, const void *from,
                  size_t length)
{
    const struct iovec here = {.iov_base = (void *)(uintptr_t)from, .iov_len = length};
    const struct iovec there = {.iov_base = (void *)(uintptr_t)to->address, .iov_len = length};

    if (likely(to->direct != NULL)) {
        memory_place(to->direct, from, length);
        return true;
    }
    return process_vm_writev(process->pid, &here, 1, &there, 1, 0) == (ssize_t)length;
}

bool memory_read(const struct process *process, const struct span *from, void *to, size_t length)
{
    const struct iovec here = {.iov_base = to, .iov_len = length};
    const struct iovec there = {.iov_base = (void *)(uintptr_t)from->address, .iov_len = length};

    if (likely(from->direct != NULL)) {
        memcpy(to, from->direct, length);
        return true;
    }
    return process_vm_readv(process->pid, &here, 1, &there, 1, 0) == (ssize_t)length;
}
