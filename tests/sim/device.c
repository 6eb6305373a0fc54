/* device.c: the files, and the two backends of io.h's table, which here are one.
 *
 * A piece takes a random time and then moves its bytes: all, some of them, or none with an error
 * that asks to try again.  Where the program says that a task's file is bad, it ends so.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "scheduler/io.h"
#include "tests/sim/sim.h"
#include "tests/sim/world.h"

/* ---- files ----------------------------------------------------------------------------------- */

struct dt_file {
    int refs;
};

enum { WRITTEN_MAX = 1024 };

/* What was written, by offset: each task has a place of its own. */
static struct {
    int64_t offset;
    unsigned char bytes[SIM_ELEMENTS_MAX * sizeof(int64_t)];
} written[WRITTEN_MAX];
static int written_count;

void sim_files_start(void) { written_count = 0; }

dt_file *sim_file_new(void) {
    dt_file *file = dt_alloc(sizeof *file);
    if (file != NULL) file->refs = 1;
    return file;
}

dt_file *dt_file_retain(dt_file *file) {
    if (file != NULL) file->refs++;
    return file;
}

void dt_file_release(dt_file *file) {
    if (file != NULL && --file->refs == 0) dt_free(file, sizeof *file);
}

int dt_file_fd(const dt_file *file) {
    (void)file;
    return 7;
}

const char *dt_file_path(const dt_file *file) {
    (void)file;
    return "file";
}

int64_t sim_file_value(int64_t offset) {
    uint64_t z = (uint64_t)offset * 0x9e3779b97f4a7c15 + 12345;
    return (int64_t)(z ^ z >> 29);
}

static unsigned char *place(int64_t base) {
    for (int k = 0; k < written_count; k++)
        if (written[k].offset == base) return written[k].bytes;
    DT_ASSERT(written_count < WRITTEN_MAX);
    written[written_count].offset = base;
    memset(written[written_count].bytes, 0, sizeof written[0].bytes);
    return written[written_count++].bytes;
}

int64_t sim_file_written(int64_t offset) {
    int64_t value;
    for (int k = 0; k < written_count; k++) {
        int64_t at = offset - written[k].offset;
        if (at < 0 || at >= (int64_t)sizeof written[k].bytes) continue;
        memcpy(&value, written[k].bytes + at, sizeof value);
        return value;
    }
    return 0;
}

/* ---- the device ------------------------------------------------------------------------------ */

typedef struct under_way {
    dt_io_piece *piece;
    int64_t due_ns;
} under_way;

static under_way pieces[DT__IO_PIECES_MAX];
static int pieces_count;
static bool woken;

enum { WAKE_FD = 5 };

int sim_eventfd(unsigned count, int flags);
ssize_t sim_write(int fd, const void *from, size_t count);
int sim_close(int fd);

int sim_eventfd(unsigned count, int flags) {
    (void)count;
    (void)flags;
    woken = false;
    return WAKE_FD;
}

ssize_t sim_write(int fd, const void *from, size_t count) {
    (void)from;
    DT_ASSERT(fd == WAKE_FD);
    if (sim_one_in(16)) {
        errno = EINTR;
        return -1;
    }
    woken = true;
    sim_tell(&woken);
    sim_wake(&woken, 1);
    return (ssize_t)count;
}

int sim_close(int fd) {
    DT_ASSERT(fd == WAKE_FD);
    return 0;
}

static dt_status open_device(dt_io_engine *engine) {
    (void)engine;
    if (sim_starts_fail && sim_one_in(4)) return dt_fail_errno(EPERM, "cannot open the device");
    pieces_count = 0;
    return DT_OK;
}

static void close_device(dt_io_engine *engine) {
    (void)engine;
    if (pieces_count != 0) sim_violation("the device is closed with %d pieces", pieces_count);
}

static void start_piece(dt_io_engine *engine, dt_io_piece *piece) {
    (void)engine;
    sim_task *t = piece->task->user;
    sim_check_begin(t);
    t->inside++;
    sim_event("T%lld piece of %lld bytes at %lld", t->index, piece->length, piece->offset, 0);
    if (pieces_count == DT__IO_PIECES_MAX) sim_violation("more pieces than there are");
    int64_t takes_ns = sim_one_in(4) ? 1 : sim_below(sim_one_in(8) ? 5000000 : 60000);
    pieces[pieces_count++] = (under_way){piece, sim_now() + takes_ns};
}

static void move_bytes(const dt_io_piece *piece, const sim_task *t, uint32_t length) {
    int64_t at = piece->offset - t->file_offset;
    if (piece->write) {
        memcpy(place(t->file_offset) + at, piece->data, length);
        return;
    }
    int64_t values[SIM_ELEMENTS_MAX];
    for (int64_t k = 0; k < SIM_ELEMENTS_MAX; k++)
        values[k] = sim_file_value(t->file_offset + 8 * k);
    memcpy(piece->data, (char *)values + at, length);
}

static int32_t outcome(const dt_io_piece *piece, const sim_task *t) {
    if (sim_one_in(12)) return sim_one_in(2) ? -EINTR : -EAGAIN;
    if (t->io_fate == SIM_IO_ERROR) return -EIO;
    uint32_t length = piece->length;
    if (t->io_fate == SIM_IO_TRUNCATED && sim_one_in(2)) return 0;
    if (sim_one_in(4) && length > 1) {
        length = 1 + (uint32_t)sim_below(length - 1);
        sim_cover(short_moves);
    }
    if (t->io_fate == SIM_IO_TRUNCATED && length == piece->length) return 0;
    move_bytes(piece, t, length);
    return (int32_t)length;
}

/* Puts the pieces whose time has come on the list of the finished ones. */
static void collect(dt_io_engine *engine) {
    for (int k = 0; k < pieces_count;) {
        dt_io_piece *piece = pieces[k].piece;
        if (pieces[k].due_ns > sim_now()) {
            k++;
            continue;
        }
        sim_task *t = piece->task->user;
        piece->result = outcome(piece, t);
        t->inside--;
        piece->next = engine->finished;
        engine->finished = piece;
        pieces[k] = pieces[--pieces_count];
    }
}

static void wait_for_events(dt_io_engine *engine, int64_t deadline_ns) {
    collect(engine);
    if (deadline_ns == 0 || sim_one_in(64)) {
        sim_hear(&woken);
        woken = false; /* what it was for is looked at now */
        return;
    }
    while (!woken && engine->finished == NULL && (deadline_ns < 0 || sim_now() < deadline_ns)) {
        int64_t until_ns = deadline_ns;
        for (int k = 0; k < pieces_count; k++)
            if (until_ns < 0 || pieces[k].due_ns < until_ns) until_ns = pieces[k].due_ns;
        sim_cover(controller_slept);
        sim_event("the controller sleeps", 0, 0, 0, 0);
        (void)sim_block(&woken, until_ns);
        collect(engine);
    }
    sim_hear(&woken);
    woken = false;
}

const dt_io_backend dt__io_uring = {"uring", open_device, close_device, start_piece,
                                    wait_for_events};
const dt_io_backend dt__io_epoll = {"epoll", open_device, close_device, start_piece,
                                    wait_for_events};
