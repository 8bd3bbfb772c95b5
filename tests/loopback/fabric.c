/* The run directory: the files processes meet in, the common clock, who is still alive. */
#include "loopback.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FABRIC_MAGIC 0x6c6f6f70u
#define CALIBRATE_NS 10000000
#define ALIVE_CHECK_NS 5e6

struct fabric fabric;

static double setting(const char *name, double otherwise)
{
    const char *text = getenv(name);
    char *end;
    double value;

    if (text == NULL || *text == '\0')
        return otherwise;
    value = strtod(text, &end);
    if (*end != '\0' || value < 0) {
        fprintf(stderr, "loopback: %s=%s is not a number of 0 or more\n", name, text);
        exit(2);
    }
    return value;
}

unsigned int fabric_devices(void)
{
    double count = setting("LOOPBACK_DEVICES", 1);

    return count > 16 ? 16 : (unsigned int)count;
}

double fabric_gbit_s(void)
{
    return setting("LOOPBACK_GBIT_S", 100);
}

static void path_of(const char *name, char path[512])
{
    snprintf(path, 512, "%s/%s", fabric.directory, name);
}

static uint64_t monotonic_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Of a few pairs of readings the one with the least time between: an interruption spoils none. */
static void read_clocks(uint64_t *tick, uint64_t *ns)
{
    uint64_t best = UINT64_MAX;

    for (int i = 0; i < 16; i++) {
        const uint64_t before = ticks();
        const uint64_t middle = monotonic_ns();
        const uint64_t after = ticks();

        if (after - before < best) {
            best = after - before;
            *tick = before + best / 2;
            *ns = middle;
        }
    }
}

static double calibrate(void)
{
    const struct timespec pause = {.tv_sec = 0, .tv_nsec = CALIBRATE_NS};
    uint64_t tick[2] = {0, 0};
    uint64_t ns[2] = {0, 0};

    read_clocks(&tick[0], &ns[0]);
    nanosleep(&pause, NULL);
    read_clocks(&tick[1], &ns[1]);
    return (double)(tick[1] - tick[0]) / (double)(ns[1] - ns[0]);
}

static int open_shared(void)
{
    char path[512];
    struct fabric_shared *shared;
    int fd;

    path_of("fabric", path);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    if (flock(fd, LOCK_EX) != 0 || ftruncate(fd, sizeof(*shared)) != 0) {
        close(fd);
        return errno;
    }
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) {
        close(fd);
        return errno;
    }
    if (shared->magic != FABRIC_MAGIC) {
        shared->ticks_per_ns = calibrate();
        shared->next_qp_num = 0x100;
        shared->magic = FABRIC_MAGIC;
    }
    flock(fd, LOCK_UN); /* closing would not do: the mapping keeps the file open */
    close(fd);
    fabric.shared = shared;
    return 0;
}

/* Files of processes that were killed: the name carries the process's number. */
static void sweep(void)
{
    DIR *directory = opendir(fabric.directory);
    const struct dirent *item;

    if (directory == NULL)
        return;
    while ((item = readdir(directory)) != NULL) {
        const char *dash = strrchr(item->d_name, '-');

        if (dash != NULL && kill((pid_t)atol(dash + 1), 0) != 0 && errno == ESRCH)
            fabric_unlink(item->d_name);
    }
    closedir(directory);
}

void *fabric_create(const char *name, size_t size)
{
    char path[512];
    void *memory;
    int fd;

    path_of(name, path);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return NULL;
    memory = ftruncate(fd, (off_t)size) != 0
                 ? MAP_FAILED
                 : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

void *fabric_map(const char *name, size_t *size)
{
    char path[512];
    struct stat stat;
    void *memory = MAP_FAILED;
    int fd;

    path_of(name, path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &stat) == 0 && stat.st_size > 0) {
        *size = (size_t)stat.st_size;
        memory = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    }
    close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

void fabric_unlink(const char *name)
{
    char path[512];

    path_of(name, path);
    unlink(path);
}

void fabric_qp_name(uint32_t qp_num, pid_t owner, char name[40])
{
    snprintf(name, 40, "qp%06x-%d", qp_num, (int)owner);
}

static struct process *process_add(const char *name, struct process_shared *shared, bool is_self)
{
    struct process *process = calloc(1, sizeof(*process));

    if (process == NULL)
        return NULL;
    snprintf(process->name, sizeof(process->name), "%s", name);
    process->shared = shared;
    process->pid = shared->pid;
    process->is_self = is_self;
    process->pidfd = is_self ? -1 : (int)syscall(SYS_pidfd_open, process->pid, 0);
    process->dead = !is_self && process->pidfd < 0;
    process->next = fabric.processes;
    fabric.processes = process;
    return process;
}

struct process *process_find(const char *name)
{
    struct process_shared *shared;
    size_t size;

    for (struct process *process = fabric.processes; process != NULL; process = process->next)
        if (strcmp(process->name, name) == 0)
            return process;
    shared = fabric_map(name, &size);
    return shared == NULL ? NULL : process_add(name, shared, false);
}

bool process_alive(struct process *process, uint64_t now)
{
    struct pollfd look = {.fd = process->pidfd, .events = POLLIN};

    if (likely(process->is_self || now - process->checked < ns_to_ticks(ALIVE_CHECK_NS)))
        return !process->dead;
    process->checked = now;
    if (!process->dead && poll(&look, 1, 0) != 0)
        process->dead = true;
    return !process->dead;
}

/* The pages of one key of another process, mapped here once. */
char *process_map(struct process *process, const struct key_entry *entry)
{
    const uint32_t key = entry->key;
    struct mapping *mapping = &process->mappings[key % LOOPBACK_KEYS];
    char path[64];
    void *memory;
    int fd;

    if (likely(mapping->key == key))
        return mapping->base;
    if (mapping->base != NULL)
        munmap(mapping->base, mapping->size);
    mapping->key = 0;
    mapping->base = NULL;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)process->pid, entry->memory_fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    memory = mmap(NULL, entry->shared_end - entry->shared_start, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_POPULATE, fd, (off_t)entry->file_offset);
    close(fd);
    if (memory == MAP_FAILED)
        return NULL;
    mapping->key = key;
    mapping->base = memory;
    mapping->size = entry->shared_end - entry->shared_start;
    return memory;
}

static int open_self(void)
{
    char name[32];
    struct process_shared *shared;

    snprintf(name, sizeof(name), "process-%d", (int)getpid());
    fabric_unlink(name);
    shared = fabric_create(name, sizeof(*shared));
    if (shared == NULL)
        return errno;
    shared->pid = (int32_t)getpid();
    fabric.self = process_add(name, shared, true);
    return fabric.self == NULL ? ENOMEM : 0;
}

int fabric_open(void)
{
    const char *directory = getenv("LOOPBACK_RUN");
    int rc;

    if (fabric.self != NULL)
        return 0;
    if (directory != NULL && strlen(directory) >= sizeof(fabric.directory))
        return ENAMETOOLONG;
    if (directory != NULL && *directory != '\0')
        snprintf(fabric.directory, sizeof(fabric.directory), "%s", directory);
    else
        snprintf(fabric.directory, sizeof(fabric.directory), "/dev/shm/loopback-%d", (int)getuid());
    if (mkdir(fabric.directory, 0700) != 0 && errno != EEXIST)
        return errno;
    rc = open_shared();
    if (rc != 0)
        return rc;
    sweep();
    fabric.ticks_per_ns = fabric.shared->ticks_per_ns;
    fabric.delay = ns_to_ticks(setting("LOOPBACK_DELAY_NS", 1000));
    fabric.ticks_per_byte = fabric_gbit_s() > 0 ? 8 / fabric_gbit_s() * fabric.ticks_per_ns : 0;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* lets the peer copy to unshared pages */
    return open_self();
}

__attribute__((destructor)) static void fabric_exit(void)
{
    char name[40];

    if (fabric.self == NULL || fabric.self->pid != getpid())
        return;
    for (const struct loopback_qp *qp = all_qps; qp != NULL; qp = qp->next) {
        fabric_qp_name(qp->base.qp_num, getpid(), name);
        qp->own->state = IBV_QPS_RESET;
        fabric_unlink(name);
    }
    fabric_unlink(fabric.self->name);
}
