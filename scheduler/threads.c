/* threads.c: starting threads, and how many CPUs the process may use.
 *
 * The default number of workers is the smallest of the CPU affinity mask and the CPU quotas of the
 * process's cgroups, own and above, rounded up: a container limited to 1.5 CPUs gets two workers.
 */
#include "scheduler/threads.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scheduler/sched.h"

dt_status dt__thread_start(pthread_t *thread, void *(*main)(void *), void *argument,
                           const char *name_format, int index) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* inherited by the new thread */
    int error = pthread_create(thread, NULL, main, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) return dt_fail_errno(error, "cannot start a thread");
    char name[16];
    snprintf(name, sizeof name, name_format, index);
    pthread_setname_np(*thread, name);
    return DT_OK;
}

/* The whole of a small file; NULL when there is none. */
static char *read_small(const char *path, char *buffer, size_t size) {
    FILE *f = fopen(path, "re");
    if (f == NULL) return NULL;
    size_t n = fread(buffer, 1, size - 1, f);
    fclose(f);
    buffer[n] = 0;
    return buffer;
}

int dt__threads_parse_cpu_max(const char *text) {
    long long quota, period;
    if (sscanf(text, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0) return 0;
    long long cpus = (quota + period - 1) / period;
    return cpus > DT_THREADS_MAX ? 0 : (int)cpus;
}

static int smaller_limit(int a, int b) { return a == 0 ? b : b == 0 ? a : a < b ? a : b; }

/* The quota in one cgroup folder, v2 or v1. */
static int folder_limit(const char *folder, int version) {
    char path[4200], a[64], b[64], line[130];
    if (version == 2) {
        snprintf(path, sizeof path, "%s/cpu.max", folder);
        return read_small(path, a, sizeof a) ? dt__threads_parse_cpu_max(a) : 0;
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!read_small(path, a, sizeof a)) return 0;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (!read_small(path, b, sizeof b)) return 0;
    a[strcspn(a, "\n")] = 0;
    snprintf(line, sizeof line, "%s %s", a, b);
    return dt__threads_parse_cpu_max(line);
}

/* The smallest quota from a cgroup up to the root of its hierarchy. */
static int hierarchy_limit(const char *mount, const char *group, int version) {
    char folder[4100];
    snprintf(folder, sizeof folder, "%s%s", mount, group);
    size_t root = strlen(mount);
    int limit = 0;
    for (;;) {
        limit = smaller_limit(limit, folder_limit(folder, version));
        char *slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < root) return limit;
        *slash = 0;
    }
}

static bool lists_cpu(const char *controllers) {
    for (const char *c = controllers; *c != 0; c += strcspn(c, ","), c += *c == ',')
        if (strncmp(c, "cpu", 3) == 0 && (c[3] == ',' || c[3] == 0)) return true;
    return false;
}

static int cgroup_limit(void) {
    char text[8192];
    if (!read_small("/proc/self/cgroup", text, sizeof text)) return 0;
    int limit = 0;
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL) continue;
        controllers++;
        *group++ = 0;
        if (*controllers == 0) {
            limit = smaller_limit(limit, hierarchy_limit("/sys/fs/cgroup", group, 2));
        } else if (lists_cpu(controllers)) {
            limit = smaller_limit(limit, hierarchy_limit("/sys/fs/cgroup/cpu", group, 1));
        }
    }
    return limit;
}

/* The CPUs of the affinity mask, however many the kernel knows. */
static int affinity_count(void) {
    for (int cpus = 1024; cpus <= 1 << 16; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (set == NULL) break;
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        int error = errno;
        CPU_FREE(set);
        if (count > 0) return count;
        if (error != EINVAL) break;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int dt_sched_default_threads(void) {
    int threads = smaller_limit(affinity_count(), cgroup_limit());
    return threads > DT_THREADS_MAX ? DT_THREADS_MAX : threads;
}
