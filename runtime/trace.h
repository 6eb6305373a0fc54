/* trace.h: what happened when, in which thread: records of a profile.
 *
 * While a profile is recorded (dt_trace_is_on), every thread of the runtime appends records of a
 * fixed size to a list of chunks of its own.  Nothing is shared between threads but one bound on
 * the number of chunks, so that recording neither waits nor changes who waits for whom.  When it
 * is over, trace_json.c joins the records into a Chrome trace.
 *
 *   start --> on: threads append --stop--> off: dt_trace_write, any number of times --clear-->
 * empty
 *
 * Records of one task are tied together by its `call`, a number that the client gives it when it
 * submits it under a profile (dt_task.client, dt_future): the call of the op, the submission, the
 * run, the delivery to a loop.
 *
 * I1: when tracing is off it costs one relaxed load wherever something would be recorded.
 * I2: dt_trace_append never fails towards its caller: what finds no room or no memory is counted.
 * I3: after dt_trace_stop no record is added and none changes; only start and clear free chunks.
 * I4: start, stop, write and clear are called by one thread at a time (in Python: with the GIL, or
 *     by its one profile).
 * I5: a forked child starts with tracing off and without records of its own.
 */
#ifndef DT_RUNTIME_TRACE_H
#define DT_RUNTIME_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "runtime/status.h"

/* Hidden, so that the extension reads it without its global offset table. */
extern __attribute__((visibility("hidden"))) _Atomic(bool) dt_trace_on;

static inline bool dt_trace_is_on(void) {
    return atomic_load_explicit(&dt_trace_on, memory_order_relaxed);
}

/* CLOCK_MONOTONIC, as the times of tasks. */
static inline int64_t dt_trace_now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000000 + ts.tv_nsec;
}

typedef enum dt_trace_kind {
    DT_TRACE_OP,      /* client: one call of an op; call: the last task that it submitted */
    DT_TRACE_SUBMIT,  /* client: a task went to the scheduler */
    DT_TRACE_TASK,    /* the thread that ended (and, but for IO, ran) a task: its times */
    DT_TRACE_PARTS,   /* a thread that computed: its share of a task that several did */
    DT_TRACE_DELIVER, /* loop: the completion of a task reached whoever awaited it */
    DT_TRACE_WAIT,    /* client: blocked until a task ended */
    DT_TRACE_ROUND,   /* controller, or a client in its stead: a round that did something */
} dt_trace_kind;

enum {
    DT_TRACE_FAILED = 1u << 0,  /* OP: raised, or its kernel failed here. TASK: count says how */
    DT_TRACE_INLINE = 1u << 1,  /* OP: the kernel ran in the client */
    DT_TRACE_DIRECT = 1u << 2,  /* TASK: went straight to a worker */
    DT_TRACE_DROPPED = 1u << 3, /* TASK: given up, never ran */
    DT_TRACE_IO = 1u << 4,      /* TASK: ran in no thread, and others at the same time */
    DT_TRACE_INSIDE = 1u << 5,  /* SUBMIT: by the op whose OP record encloses it */
};

/* Fields that a kind does not name are 0. */
typedef struct dt_trace_record {
    int64_t start_ns, end_ns; /* TASK: of its run; start 0: it never ran */
    int64_t submit_ns;        /* TASK */
    int64_t bytes;            /* OP that ran inline, TASK: of its operands */
    uint64_t seq;             /* TASK, PARTS: program order. ROUND: tasks linked */
    uint64_t leader;     /* TASK: of the pass that it was a part of; 0: alone. ROUND: retired */
    const char *label;   /* lives for ever: where not NULL, its name in place of op's */
    uint32_t call;       /* ties records of a task together; 0: begun before the profile */
    uint32_t site, name; /* OP, SUBMIT: see dt_client_note. WAIT: name says what waits */
    int32_t count;       /* PARTS: parts computed. TASK: its dt_status. ROUND: started */
    uint16_t op;         /* dt_op_id */
    uint8_t kind;        /* dt_trace_kind */
    uint8_t flags;
} dt_trace_record;

_Static_assert(sizeof(dt_trace_record) == 80, "a record is 80 bytes");

/* Empties what was recorded and switches on. records_max: room for about so many records, in all
 * threads together (rounded up to chunks, and one for each thread). DT_E_RUNTIME when it is on
 * already. */
dt_status dt_trace_start(int64_t records_max) DT_MUST_CHECK;
void dt_trace_stop(void);  /* when off: nothing */
void dt_trace_clear(void); /* only when off */

/* Any thread; copies the record. Does nothing when tracing has just been switched off. */
void dt_trace_append(const dt_trace_record *record);

/* A number for a task that is submitted now; never 0. */
uint32_t dt_trace_next_call(void);

/* How the calling thread's track is called; once for each profile, at the first record or later.
 * Without one it is the system's name of the thread. */
void dt_trace_name_thread(const char *name);
bool dt_trace_thread_is_named(void);

/* The calling thread's nesting of ops, for dispatch: how deep, and what happened inside. */
typedef struct dt_trace_nesting {
    uint32_t depth;
    uint32_t last_call; /* submitted since the innermost op began */
    bool failed;        /* its kernel did, here */
} dt_trace_nesting;
dt_trace_nesting *dt_trace_nesting_get(void);

/* ---- reading, when it is off ----------------------------------------------------------------- */

#define DT_TRACE_CHUNK_RECORDS 819 /* a chunk is 64 KiB */

typedef struct dt_trace_chunk {
    struct dt_trace_chunk *next;
    int32_t count;
    dt_trace_record records[DT_TRACE_CHUNK_RECORDS];
} dt_trace_chunk;

typedef struct dt_trace_track {
    const char *name; /* "dt-ctl" and "dt-wrk-N" are the controller's and the workers' */
    bool named;       /* by dt_trace_name_thread */
    int64_t tid;
    const dt_trace_chunk *chunks;
} dt_trace_track;

/* Calls visit for each thread that recorded something. */
void dt_trace_visit(void (*visit)(void *context, const dt_trace_track *track), void *context);

typedef struct dt_trace_totals {
    int64_t records, dropped;
    int64_t start_ns, stop_ns;
    uint32_t first_call; /* calls of this profile are first_call, first_call + 1, ... */
    uint32_t calls;
} dt_trace_totals;
void dt_trace_totals_get(dt_trace_totals *totals);

/* ---- trace_json.c ---------------------------------------------------------------------------- */

/* What only the client can read: texts by number, as UTF-8; NULL: left out of the trace. */
typedef struct dt_trace_texts {
    const char *(*site)(const void *context, uint32_t site);
    const char *(*name)(const void *context, uint32_t name);
    const void *context;
} dt_trace_texts;

/* Writes everything recorded, as JSON, from the descriptor's position on. DT_E_OS where that fails;
 * DT_E_NO_MEMORY. Tracing must be off. */
dt_status dt_trace_write(int fd, const dt_trace_texts *texts) DT_MUST_CHECK;

#endif
