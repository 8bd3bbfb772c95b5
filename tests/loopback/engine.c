/*
 * The lock, and the thread that acts while the caller does not: it tells completion channels of
 * what is due and moves bytes a caller posted and then left. It starts when first needed; a program
 * that polls, with one message under way, never has it, and then no lock is taken either.
 */
#define _GNU_SOURCE
#include "loopback.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LATE_NS 2e6    /* how long nobody may poll before posted work is looked after */
#define STALLED_NS 5e4 /* the same where a caller may sleep until it is done */
#define MISSED_NS 1e6  /* a peer's ring that crosses with falling asleep may be missed */
#define SPIN_NS 3e3    /* a sleep that is not worth a system call */

struct loopback_qp *all_qps;

uint32_t engine_progress;
static _Atomic uint32_t lock_word;
static _Atomic bool is_running;

bool engine_enter(void)
{
    if (likely(__libc_single_threaded))
        return false;
    while (atomic_exchange_explicit(&lock_word, 1, memory_order_acquire) != 0)
        sched_yield();
    return true;
}

void engine_leave(bool locked)
{
    if (locked)
        atomic_store_explicit(&lock_word, 0, memory_order_release);
}

static long futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *timeout)
{
    return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

void engine_ring(struct process_shared *process)
{
    atomic_fetch_add(&process->doorbell, 1);
    atomic_store(&process->alert, ALERT_NONE);
    futex(&process->doorbell, FUTEX_WAKE, INT_MAX, NULL);
}

static void sooner(uint64_t *wait, uint64_t other)
{
    if (other < *wait)
        *wait = other;
}

/* Tells of what is due; sets the ticks until the next is. Returns whether any CQ is armed still. */
static bool look_at_cqs(uint64_t now, uint64_t *wait)
{
    bool is_armed = false;

    for (struct loopback_cq *cq = all_cqs; cq != NULL; cq = cq->next) {
        uint64_t due;

        if (!cq->armed)
            continue;
        due = cq_next_due(cq);
        if (due <= now) {
            cq_signal(cq);
            continue;
        }
        is_armed = true;
        if (due != UINT64_MAX)
            sooner(wait, due - now);
    }
    return is_armed;
}

static uint64_t look_around(uint32_t *alert)
{
    const uint64_t now = ticks();
    uint64_t wait = UINT64_MAX;
    bool has_deferred = false;
    bool is_armed;

    for (struct loopback_qp *qp = all_qps; qp != NULL; qp = qp->next) {
        qp_progress(qp, now);
        has_deferred = has_deferred || qp_has_deferred(qp);
    }
    is_armed = look_at_cqs(now, &wait);
    if (is_armed)
        sooner(&wait, ns_to_ticks(has_deferred ? STALLED_NS : MISSED_NS));
    else if (has_deferred)
        wait = 0;
    *alert = is_armed ? ALERT_ARMED : has_deferred ? ALERT_PACING : ALERT_IDLE;
    return wait;
}

static void sleep_ticks(uint64_t wait, uint32_t bell)
{
    const uint64_t until = ticks() + wait;
    double ns;
    struct timespec timeout;

    if (wait == UINT64_MAX) {
        futex(&fabric.self->shared->doorbell, FUTEX_WAIT, bell, NULL);
        return;
    }
    ns = (double)wait / fabric.ticks_per_ns;
    timeout.tv_sec = (time_t)(ns / 1e9);
    timeout.tv_nsec = (long)(ns - (double)timeout.tv_sec * 1e9);
    if (ns > SPIN_NS)
        futex(&fabric.self->shared->doorbell, FUTEX_WAIT, bell, &timeout);
    else
        while (ticks() < until)
            ;
}

/*
 * Sleeps while no CQ is armed and the caller moves its own work, without ever taking the lock from
 * it. The counter is read unlocked: a stale value costs one more look.
 */
static void let_be(uint32_t bell)
{
    const volatile uint32_t *progress = &engine_progress;
    uint32_t before;

    do {
        before = *progress;
        sleep_ticks(ns_to_ticks(LATE_NS), bell);
    } while (*progress != before && atomic_load(&fabric.self->shared->doorbell) == bell);
}

static void *engine_main(void *unused)
{
    struct process_shared *self = fabric.self->shared;

    (void)unused;
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    for (;;) {
        const uint32_t bell = atomic_load(&self->doorbell);
        const bool locked = engine_enter();
        uint32_t alert;
        uint64_t wait;

        atomic_store(&self->alert, ALERT_ARMED); /* before the look: what comes later rings */
        wait = look_around(&alert);
        atomic_store(&self->alert, alert);
        engine_leave(locked);
        if (alert == ALERT_PACING)
            let_be(bell);
        else
            sleep_ticks(wait, bell);
        atomic_store(&self->alert, ALERT_NONE);
    }
    return NULL;
}

__attribute__((cold, noinline)) static void engine_start(void)
{
    sigset_t all;
    sigset_t before;
    pthread_t thread;

    if (atomic_exchange(&is_running, true))
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* signals are the program's own business */
    if (pthread_create(&thread, NULL, engine_main, NULL) == 0)
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* There is work that must be done, or told of, even if the caller never comes back. */
void engine_watch(bool is_armed)
{
    uint32_t alert;

    if (unlikely(!atomic_load_explicit(&is_running, memory_order_relaxed))) {
        engine_start();
        return;
    }
    alert = atomic_load_explicit(&fabric.self->shared->alert, memory_order_relaxed);
    if (alert != ALERT_NONE && (is_armed || alert != ALERT_PACING))
        engine_ring(fabric.self->shared);
}
