/* file.c: open files, shared by the tasks that use them. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "scheduler/io.h"

struct dt_file {
    _Atomic(uint32_t) refs;
    int fd;
    int64_t size;
    size_t block_bytes;
    char path[];
};

/* Only what has positions and an end can be read in pieces; a pipe would also block. */
static dt_status check_kind(int fd, const char *path, bool for_writing, int64_t *size) {
    struct stat st;
    if (fstat(fd, &st) != 0) return dt_fail_errno(errno, "cannot open '%s'", path);
    if (S_ISDIR(st.st_mode)) return dt_fail_errno(EISDIR, "cannot open '%s'", path);
    if (!S_ISREG(st.st_mode) && !(for_writing && S_ISCHR(st.st_mode)))
        return dt_fail_errno(EINVAL, "cannot open '%s': not a regular file", path);
    *size = st.st_size;
    return DT_OK;
}

dt_status dt_file_open(const char *path, bool for_writing, dt_file **out) {
    size_t bytes = sizeof(dt_file) + strlen(path) + 1;
    dt_file *file;
    DT_ALLOC_OR_FAIL(file, bytes);
    /* O_NONBLOCK: opening a pipe must not wait for its other end. */
    int flags = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    flags |= for_writing ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY;
    int fd;
    do {
        fd = open(path, flags, 0666);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        int error = errno;
        dt_free(file, bytes);
        return dt_fail_errno(error, "cannot open '%s'", path);
    }
    dt_status status = check_kind(fd, path, for_writing, &file->size);
    if (status != DT_OK) {
        close(fd);
        dt_free(file, bytes);
        return status;
    }
    atomic_init(&file->refs, 1);
    file->fd = fd;
    file->block_bytes = bytes;
    memcpy(file->path, path, strlen(path) + 1);
    *out = file;
    return DT_OK;
}

dt_file *dt_file_retain(dt_file *file) {
    if (file != NULL) atomic_fetch_add_explicit(&file->refs, 1, memory_order_relaxed);
    return file;
}

void dt_file_release(dt_file *file) {
    if (file == NULL) return;
    if (atomic_fetch_sub_explicit(&file->refs, 1, memory_order_acq_rel) != 1) return;
    close(file->fd);
    dt_free(file, file->block_bytes);
}

int dt_file_fd(const dt_file *file) { return file->fd; }
int64_t dt_file_size(const dt_file *file) { return file->size; }
const char *dt_file_path(const dt_file *file) { return file->path; }
