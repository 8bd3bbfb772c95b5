/* What every loop needs: clocks, and the two ways to end early. */
#ifndef RDMABENCH_LOOP_H
#define RDMABENCH_LOOP_H

#include "hotloop.h"

#include <time.h>

#define unlikely(x) __builtin_expect(!!(x), 0)

static inline uint64_t clock_ns(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t cpu_ticks(void)
{
#if defined(__x86_64__)
	uint32_t low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	return clock_ns(CLOCK_MONOTONIC_RAW);
#endif
}

static inline uint64_t stamp(uint32_t clock)
{
	return clock == HL_CLOCK_CPU ? cpu_ticks() : clock_ns(CLOCK_MONOTONIC_RAW);
}

static __attribute__((cold, noinline)) int fail(struct hl_run *run, int where, int error,
						uint32_t lane)
{
	run->where = where;
	run->error = error;
	run->lane = lane;
	run->last_ns = clock_ns(CLOCK_MONOTONIC_RAW);
	return where;
}

static __attribute__((cold, noinline)) int overdue(struct hl_run *run)
{
	if (*run->stop)
		return fail(run, HL_STOPPED, 0, 0);
	if (clock_ns(CLOCK_MONOTONIC) > run->deadline_ns)
		return fail(run, HL_DEADLINE, 0, 0);
	return 0;
}

#endif
