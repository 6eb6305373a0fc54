/* stats.h: counters that are always on: what the clients did, and how long tasks waited and ran.
 *
 * Clients count in plain integers under the client lock, so that the shortest way of an op pays one
 * instruction.  Threads that end tasks count times in histograms of their own; a reader adds them
 * up.  Nothing is ever reset: whoever wants to know about an interval subtracts.
 *
 * I1: dt_counts is read and written with the client lock only.
 * I2: a thread's histograms have one writer, their thread; when it ends, another one goes on with
 *     them.
 */
#ifndef DT_RUNTIME_STATS_H
#define DT_RUNTIME_STATS_H

#include <stdint.h>

/* Bucket 0 counts values up to 0, bucket k those in [2^(k-1), 2^k), the last one all above too. */
#define DT_HISTOGRAM_BUCKETS 48

typedef struct dt_client_counts {
    int64_t fast;       /* ops that took python/'s shortest way */
    int64_t dispatched; /* ops that went through dt_dispatch */
    int64_t inlined;    /* ... and ran their kernel in the client */
    int64_t loop_wakeups, deliveries;
    int64_t
        batches[DT_HISTOGRAM_BUCKETS]; /* of deliveries at one time; a wake-up has one or more */
} dt_client_counts;

/* Hidden, so that the extension counts without its global offset table. */
extern __attribute__((visibility("hidden"))) dt_client_counts dt_counts;

static inline unsigned dt_histogram_bucket(int64_t value) {
    if (value <= 0) return 0;
    unsigned bucket = 64 - (unsigned)__builtin_clzll((unsigned long long)value);
    return bucket < DT_HISTOGRAM_BUCKETS ? bucket : DT_HISTOGRAM_BUCKETS - 1;
}

typedef struct dt_histogram {
    int64_t buckets[DT_HISTOGRAM_BUCKETS];
    int64_t sum; /* of the values */
} dt_histogram;

typedef struct dt_time_stats {
    dt_histogram queue_ns; /* from the submission of a task to its start */
    dt_histogram run_ns;   /* from there to its end */
} dt_time_stats;

/* A task that ran has ended. Any thread. */
void dt_stats_add_task(int64_t queue_ns, int64_t run_ns);
/* All that were added so far, by any thread. */
void dt_stats_times_get(dt_time_stats *out);

#endif
