/* trace_json.c: the records of a profile as a Chrome trace (JSON object format).
 *
 * What becomes of a task:
 *   client    a slice of the call, its arguments the user's line and the coroutine
 *   queue     an asynchronous span from its submission to its start
 *   worker    a slice of its run (in a client that helps, too); of a pass one slice that lists its
 * members; of a task in parts a slice in each thread that computed some file I/O  an asynchronous
 * span, since many overlap in the controller, and a mark at its end arrow     from the call to the
 * run, and on to each delivery or wait that it ended
 *
 * Two passes over the records: the first finds, for each call, the records that arrows connect; the
 * second writes.
 *
 * I1: an arrow is written only when its both ends are: the submission, and a run or a delivery. The
 *     last place in time ends it.
 * I2: slices of one thread nest, since each is the life of one function call there.
 * I3: what is written is valid UTF-8, whatever the texts hold.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "runtime/op.h"
#include "runtime/trace.h"

#define BUFFER_BYTES ((size_t)1 << 18)
#define EVENT_BYTES_MAX ((size_t)1024) /* of what put() writes at one time */
#define PASS_NAMES_MAX 6

/* The ends of one task's arrow. */
typedef struct ends {
    const dt_trace_record *submit;
    const dt_trace_record *run;  /* its TASK record, or the first of its PARTS */
    const dt_trace_record *last; /* DELIVER or WAIT, the latest */
} ends;

typedef struct writer {
    const dt_trace_texts *texts;
    dt_trace_totals totals;
    ends *calls; /* [totals.calls] */
    uint64_t *split;
    size_t split_count, split_capacity; /* seqs of tasks with PARTS, sorted */
    int64_t origin_ns;
    int64_t unfinished;
    int64_t controller_tid;
    int pid;

    const dt_trace_track *track; /* the one being written */
    bool on_worker;
    bool first;

    int fd;
    int error; /* errno */
    char *buffer;
    size_t used;
} writer;

/* ---- text ------------------------------------------------------------------------------------ */

static void flush(writer *w) {
    size_t done = 0;
    while (done < w->used && w->error == 0) {
        ssize_t n = write(w->fd, w->buffer + done, w->used - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            w->error = errno;
    }
    w->used = 0;
}

static void put(writer *w, const char *format, ...) DT_PRINTF(2, 3);
static void put(writer *w, const char *format, ...) {
    if (BUFFER_BYTES - w->used < EVENT_BYTES_MAX) flush(w);
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(w->buffer + w->used, EVENT_BYTES_MAX, format, arguments);
    va_end(arguments);
    DT_ASSERT(n >= 0 && (size_t)n < EVENT_BYTES_MAX);
    w->used += (size_t)n;
}

static void put_bytes(writer *w, const char *bytes, size_t n) {
    while (n > 0) {
        if (w->used == BUFFER_BYTES) flush(w);
        size_t room = BUFFER_BYTES - w->used < n ? BUFFER_BYTES - w->used : n;
        memcpy(w->buffer + w->used, bytes, room);
        w->used += room;
        bytes += room;
        n -= room;
    }
}

/* How long the UTF-8 sequence at s is; 0: it is none. */
static int sequence(const unsigned char *s) {
    if (s[0] < 0x80) return 1;
    int length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    for (int k = 1; k < length; k++)
        if ((s[k] & 0xc0) != 0x80) return 0;
    bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool beyond = (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f);
    return overlong || beyond ? 0 : length;
}

static void put_escaped(writer *w, unsigned char c, int length) {
    if (length == 0)
        put(w, "\\ufffd");
    else if (c < 0x20)
        put(w, "\\u%04x", c);
    else
        put(w, "\\%c", c);
}

/* A JSON string. */
static void put_text(writer *w, const char *text) {
    const unsigned char *s = (const unsigned char *)text, *plain = s;
    put_bytes(w, "\"", 1);
    while (*s != 0) {
        int length = sequence(s);
        if (length > 0 && *s >= 0x20 && *s != '"' && *s != '\\') {
            s += length;
            continue;
        }
        put_bytes(w, (const char *)plain, (size_t)(s - plain));
        put_escaped(w, *s, length);
        plain = ++s;
    }
    put_bytes(w, (const char *)plain, (size_t)(s - plain));
    put_bytes(w, "\"", 1);
}

static void put_us(writer *w, const char *key, int64_t ns) {
    put(w, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void put_ts(writer *w, int64_t ns) {
    put_us(w, "ts", ns > w->origin_ns ? ns - w->origin_ns : 0);
}

static void put_where(writer *w, int64_t tid) {
    put(w, ",\"pid\":%d,\"tid\":%" PRId64, w->pid, tid);
}

/* Begins an event: {"ph":"X" */
static void open_event(writer *w, const char *phase) {
    put(w, "%s{\"ph\":\"%s\"", w->first ? "\n" : ",\n", phase);
    w->first = false;
}

static const char *name_of(const dt_trace_record *r, char *buffer, size_t size) {
    if (r->label != NULL) return r->label;
    if (r->op >= DT_OP_COUNT) return "?";
    return dt_op_display_name(&dt_op_table[r->op], buffer, size);
}

/* ,"key":"text" */
static void put_argument(writer *w, const char *key, const char *text) {
    if (text == NULL) return;
    put(w, ",\"%s\":", key);
    put_text(w, text);
}

static void put_name(writer *w, const dt_trace_record *r) {
    char buffer[64];
    put_argument(w, "name", name_of(r, buffer, sizeof buffer));
}

static const char *site_of(const writer *w, const dt_trace_record *r) {
    return r->site != 0 ? w->texts->site(w->texts->context, r->site) : NULL;
}

static const char *coroutine_of(const writer *w, const dt_trace_record *r) {
    return r->name != 0 ? w->texts->name(w->texts->context, r->name) : NULL;
}

static void put_origin(writer *w, const dt_trace_record *r) {
    put_argument(w, "site", site_of(w, r));
    put_argument(w, "coroutine", coroutine_of(w, r));
}

/* ---- joining --------------------------------------------------------------------------------- */

/* Of this profile, or NULL. */
static ends *ends_of(const writer *w, uint32_t call) {
    uint32_t index = call - w->totals.first_call;
    return call != 0 && index < w->totals.calls ? &w->calls[index] : NULL;
}

/* Begun by an earlier profile and ended in this one: its numbers mean nothing here. */
static bool is_stale(const writer *w, const dt_trace_record *r) {
    bool of_client = r->kind == DT_TRACE_OP || r->kind == DT_TRACE_SUBMIT ||
                     r->kind == DT_TRACE_DELIVER || r->kind == DT_TRACE_WAIT;
    return of_client && r->start_ns < w->totals.start_ns;
}

static void find_origin(writer *w, const dt_trace_record *r) {
    if (r->kind == DT_TRACE_TASK && r->submit_ns < w->origin_ns) w->origin_ns = r->submit_ns;
    if (r->start_ns != 0 && r->start_ns < w->origin_ns) w->origin_ns = r->start_ns;
}

static void note_split(writer *w, uint64_t seq) {
    if (w->split_count < w->split_capacity) w->split[w->split_count++] = seq;
}

static void join(writer *w, const dt_trace_record *r) {
    if (is_stale(w, r)) return;
    find_origin(w, r);
    if (r->kind == DT_TRACE_PARTS) note_split(w, r->seq);
    ends *e = ends_of(w, r->call);
    if (e == NULL) return;
    switch (r->kind) {
    case DT_TRACE_SUBMIT:
        e->submit = r;
        break;
    case DT_TRACE_TASK:
        if (e->run == NULL) e->run = r;
        break;
    case DT_TRACE_PARTS:
        if (e->run == NULL || e->run->kind == DT_TRACE_TASK || e->run->start_ns > r->start_ns)
            e->run = r;
        break;
    case DT_TRACE_DELIVER:
    case DT_TRACE_WAIT:
        if (e->last == NULL || e->last->end_ns < r->end_ns) e->last = r;
        break;
    default:
        break;
    }
}

static void join_track(void *context, const dt_trace_track *track) {
    writer *w = context;
    if (!track->named && strcmp(track->name, "dt-ctl") == 0) w->controller_tid = track->tid;
    for (const dt_trace_chunk *c = track->chunks; c != NULL; c = c->next)
        for (int32_t k = 0; k < c->count; k++) join(w, &c->records[k]);
}

static void count_parts(void *context, const dt_trace_track *track) {
    for (const dt_trace_chunk *c = track->chunks; c != NULL; c = c->next)
        for (int32_t k = 0; k < c->count; k++)
            *(size_t *)context += c->records[k].kind == DT_TRACE_PARTS;
}

static int compare_seqs(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static bool is_split(const writer *w, uint64_t seq) {
    return w->split_count > 0 &&
           bsearch(&seq, w->split, w->split_count, sizeof seq, compare_seqs) != NULL;
}

/* ---- arrows ---------------------------------------------------------------------------------- */

static void put_arrow(writer *w, const char *phase, uint32_t call, int64_t ns) {
    open_event(w, phase);
    put(w, ",\"cat\":\"task\",\"name\":\"task\",\"id\":%" PRIu32, call);
    if (*phase != 's') put(w, ",\"bp\":\"e\""); /* the slice around it, not the next one */
    put_ts(w, ns);
    put_where(w, w->track->tid);
    put(w, "}");
}

/* The arrow's point at record r, if it has one. */
static void put_arrow_at(writer *w, const dt_trace_record *r, int64_t ns) {
    const ends *e = ends_of(w, r->call);
    if (e == NULL || e->submit == NULL || (e->run == NULL && e->last == NULL)) return;
    if (r == e->submit)
        put_arrow(w, "s", r->call, ns);
    else if (r == e->last || (r == e->run && e->last == NULL))
        put_arrow(w, "f", r->call, ns);
    else if (r == e->run || r->kind == DT_TRACE_DELIVER || r->kind == DT_TRACE_WAIT)
        put_arrow(w, "t", r->call, ns);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Begins a slice, up to its arguments' opening brace. */
static void open_slice(writer *w, int64_t start_ns, int64_t end_ns) {
    open_event(w, "X");
    put_ts(w, start_ns);
    put_us(w, "dur", end_ns > start_ns ? end_ns - start_ns : 0);
    put_where(w, w->track->tid);
}

static void put_op(writer *w, const dt_trace_record *r) {
    open_slice(w, r->start_ns, r->end_ns);
    put_name(w, r);
    const char *lane = r->call != 0 ? "submitted" : r->flags & DT_TRACE_INLINE ? "inline" : "view";
    put(w, ",\"cat\":\"call\",\"args\":{\"lane\":\"%s\"", lane);
    if (r->bytes != 0) put(w, ",\"bytes\":%" PRId64, r->bytes);
    if (r->flags & DT_TRACE_FAILED) put(w, ",\"failed\":true");
    put_origin(w, r);
    put(w, "}}");
}

static void put_submit(writer *w, const dt_trace_record *r) {
    const ends *e = ends_of(w, r->call);
    if (e != NULL && e->run == NULL && e->last == NULL) w->unfinished++;
    if (!(r->flags & DT_TRACE_INSIDE)) {
        open_slice(w, r->start_ns, r->end_ns);
        put_name(w, r);
        put(w, ",\"cat\":\"call\",\"args\":{\"lane\":\"submitted\"");
        put_origin(w, r);
        put(w, "}}");
    }
    put_arrow_at(w, r, r->start_ns);
}

static void put_span(writer *w, const char *category, const dt_trace_record *r, int64_t start_ns,
                     int64_t end_ns) {
    int64_t tid = w->controller_tid != 0 ? w->controller_tid : w->track->tid;
    for (int k = 0; k < 2; k++) {
        open_event(w, k == 0 ? "b" : "e");
        put(w, ",\"cat\":\"%s\",\"id\":\"%s%" PRIu64 "\"", category, category, r->seq);
        put_name(w, r);
        put_ts(w, k == 0 ? start_ns : end_ns);
        put_where(w, tid);
        if (k == 0) put(w, ",\"args\":{\"seq\":%" PRIu64 "}", r->seq);
        put(w, "}");
    }
}

/* What is known of one task, inside the braces of its arguments. */
static void put_task_facts(writer *w, const dt_trace_record *r) {
    put(w, "\"seq\":%" PRIu64 ",\"bytes\":%" PRId64, r->seq, r->bytes);
    int64_t begin_ns = r->start_ns != 0 ? r->start_ns : r->end_ns;
    put_us(w, "queue_us", begin_ns > r->submit_ns ? begin_ns - r->submit_ns : 0);
    if (r->flags & DT_TRACE_DIRECT) put(w, ",\"direct\":true");
    if (r->flags & DT_TRACE_DROPPED) put(w, ",\"dropped\":true");
    if (r->flags & DT_TRACE_FAILED)
        put(w, ",\"failed\":\"%s\"", dt_status_name((dt_status)r->count));
    const ends *e = ends_of(w, r->call);
    if (e != NULL && e->submit != NULL) put_origin(w, e->submit);
}

/* The members of a pass stand one after the other. Returns how many there are from records[k] on.
 */
static int32_t pass_length(const dt_trace_chunk *c, int32_t k) {
    const dt_trace_record *first = &c->records[k];
    int32_t n = 1;
    if (first->leader == 0) return n;
    while (k + n < c->count && c->records[k + n].kind == DT_TRACE_TASK &&
           c->records[k + n].leader == first->leader)
        n++;
    return n;
}

static void put_pass_name(writer *w, const dt_trace_record *members, int32_t n) {
    char text[160], buffer[64];
    int32_t shown = n <= PASS_NAMES_MAX ? n : PASS_NAMES_MAX;
    size_t used = (size_t)snprintf(text, sizeof text, "pass of %d:", (int)n);
    for (int32_t k = 0; k < shown && used < sizeof text; k++)
        used += (size_t)snprintf(text + used, sizeof text - used, " %s",
                                 name_of(&members[k], buffer, sizeof buffer));
    if (shown < n && used < sizeof text) snprintf(text + used, sizeof text - used, " ...");
    put_argument(w, "name", text);
}

static void put_pass_members(writer *w, const dt_trace_record *members, int32_t n) {
    put(w, ",\"members\":[");
    for (int32_t k = 0; k < n; k++) {
        char buffer[64];
        put(w, "%s{\"op\":", k > 0 ? "," : "");
        put_text(w, name_of(&members[k], buffer, sizeof buffer));
        put(w, ",");
        put_task_facts(w, &members[k]);
        put(w, "}");
    }
    put(w, "]");
}

/* A task, or the n members of a pass. */
static void put_run(writer *w, const dt_trace_record *r, int32_t n) {
    bool ran = r->start_ns != 0 && !(r->flags & DT_TRACE_IO);
    int64_t start_ns =
        ran && !is_split(w, r->leader != 0 ? r->leader : r->seq) ? r->start_ns : r->end_ns;
    open_slice(w, start_ns, r->end_ns);
    if (n > 1)
        put_pass_name(w, r, n);
    else
        put_name(w, r);
    put(w, ",\"cat\":\"%s\",\"args\":{", start_ns < r->end_ns ? "run" : "end");
    put_task_facts(w, r);
    if (n > 1) put_pass_members(w, r, n);
    put(w, "}}");
    for (int32_t k = 0; k < n; k++) {
        const dt_trace_record *m = &r[k];
        int64_t begin_ns = m->start_ns != 0 ? m->start_ns : m->end_ns;
        if (m->submit_ns < begin_ns) put_span(w, "queue", m, m->submit_ns, begin_ns);
        if (m->start_ns != 0 && (m->flags & DT_TRACE_IO))
            put_span(w, "io", m, m->start_ns, m->end_ns);
        put_arrow_at(w, m, start_ns);
    }
}

static void put_parts(writer *w, const dt_trace_record *r) {
    open_slice(w, r->start_ns, r->end_ns);
    put_name(w, r);
    put(w, ",\"cat\":\"run\",\"args\":{\"seq\":%" PRIu64 ",\"parts\":%d", r->seq, (int)r->count);
    const ends *e = ends_of(w, r->call);
    if (e != NULL && e->submit != NULL) put_origin(w, e->submit);
    put(w, "}}");
    put_arrow_at(w, r, r->start_ns);
}

static void put_delivery(writer *w, const dt_trace_record *r) {
    bool wait = r->kind == DT_TRACE_WAIT;
    open_slice(w, r->start_ns, r->end_ns);
    const char *who = wait ? coroutine_of(w, r) : "resume";
    put_argument(w, "name", who != NULL ? who : "wait");
    put(w, ",\"cat\":\"%s\",\"args\":{", wait ? "wait" : "resume");
    put(w, "\"call\":%" PRIu32 "}}", r->call);
    put_arrow_at(w, r, wait && r->end_ns > r->start_ns ? r->end_ns - 1 : r->start_ns);
}

static void put_round(writer *w, const dt_trace_record *r) {
    open_slice(w, r->start_ns, r->end_ns);
    put(w, ",\"name\":\"round\",\"cat\":\"controller\",\"args\":{\"linked\":%" PRIu64, r->seq);
    put(w, ",\"retired\":%" PRIu64 ",\"started\":%d}}", r->leader, (int)r->count);
}

static void put_record(writer *w, const dt_trace_record *r, int32_t n) {
    if (is_stale(w, r)) return;
    switch ((dt_trace_kind)r->kind) {
    case DT_TRACE_OP:
        put_op(w, r);
        break;
    case DT_TRACE_SUBMIT:
        put_submit(w, r);
        break;
    case DT_TRACE_TASK:
        put_run(w, r, n);
        break;
    case DT_TRACE_PARTS:
        put_parts(w, r);
        break;
    case DT_TRACE_DELIVER:
    case DT_TRACE_WAIT:
        put_delivery(w, r);
        break;
    case DT_TRACE_ROUND:
        put_round(w, r);
        break;
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void put_metadata(writer *w, const char *what, int64_t tid, const char *text, int number) {
    open_event(w, "M");
    put(w, ",\"name\":\"%s\"", what);
    put_where(w, tid);
    put(w, ",\"args\":{");
    if (text != NULL) {
        put(w, "\"name\":");
        put_text(w, text);
    } else {
        put(w, "\"sort_index\":%d", number);
    }
    put(w, "}}");
}

/* Clients first, then the controller, then the workers. */
static void put_track_names(writer *w, const dt_trace_track *track) {
    char text[128];
    int order = 0;
    if (!track->named && strcmp(track->name, "dt-ctl") == 0) {
        snprintf(text, sizeof text, "controller");
        order = 1;
    } else if (w->on_worker) {
        order = 2 + atoi(track->name + strlen("dt-wrk-"));
        snprintf(text, sizeof text, "worker %d", order - 2);
    } else {
        snprintf(text, sizeof text, "client %s", track->name);
    }
    put_metadata(w, "thread_name", track->tid, text, 0);
    put_metadata(w, "thread_sort_index", track->tid, NULL, order);
}

static void put_track(void *context, const dt_trace_track *track) {
    writer *w = context;
    w->track = track;
    w->on_worker = !track->named && strncmp(track->name, "dt-wrk-", 7) == 0;
    put_track_names(w, track);
    for (const dt_trace_chunk *c = track->chunks; c != NULL; c = c->next)
        for (int32_t k = 0, n; k < c->count; k += n) {
            n = c->records[k].kind == DT_TRACE_TASK ? pass_length(c, k) : 1;
            put_record(w, &c->records[k], n);
        }
}

static void put_all(writer *w) {
    put(w, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    w->first = true;
    put_metadata(w, "process_name", 0, "dtorch", 0);
    dt_trace_visit(put_track, w);
    put(w, "\n],\"otherData\":{\"version\":\"dtorch %s\",\"clock\":\"CLOCK_MONOTONIC\"",
        DT_VERSION);
    put(w, ",\"start_ns\":%" PRId64 ",\"stop_ns\":%" PRId64, w->origin_ns, w->totals.stop_ns);
    put(w, ",\"records\":%" PRId64 ",\"dropped\":%" PRId64, w->totals.records, w->totals.dropped);
    put(w, ",\"unfinished\":%" PRId64 "}}\n", w->unfinished);
    flush(w);
}

dt_status dt_trace_write(int fd, const dt_trace_texts *texts) {
    writer w = {.texts = texts, .fd = fd, .pid = (int)getpid()};
    dt_trace_totals_get(&w.totals);
    w.origin_ns = w.totals.start_ns;
    dt_trace_visit(count_parts, &w.split_capacity);
    size_t calls_bytes = w.totals.calls * sizeof *w.calls;
    size_t split_bytes = w.split_capacity * sizeof *w.split;
    w.buffer = dt_alloc(BUFFER_BYTES);
    w.calls = calls_bytes != 0 ? dt_alloc_zeroed(calls_bytes) : NULL;
    w.split = split_bytes != 0 ? dt_alloc(split_bytes) : NULL;
    bool complete = w.buffer != NULL && (w.calls != NULL || calls_bytes == 0) &&
                    (w.split != NULL || split_bytes == 0);
    if (complete) {
        dt_trace_visit(join_track, &w);
        if (w.split_count > 1) qsort(w.split, w.split_count, sizeof *w.split, compare_seqs);
        put_all(&w);
    }
    dt_free(w.buffer, BUFFER_BYTES);
    dt_free(w.calls, calls_bytes);
    dt_free(w.split, split_bytes);
    if (!complete) return dt_fail(DT_E_NO_MEMORY, "out of memory: the trace was not written");
    if (w.error != 0) return dt_fail_errno(w.error, "the trace could not be written");
    return DT_OK;
}
