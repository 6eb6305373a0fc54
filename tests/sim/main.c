/* main.c: the scheduler's simulator; see world.h for what it is, sim.h for its parts.
 *
 *   sim                         CI's share of seeds; fails also when some state was never reached
 *   sim --seeds N --from S      N seeds, from S on
 *   sim --seed S [--trace]      one seed, with all that happens
 *   sim --seconds T --from S    as many as there is time for
 *   sim --plant P [--seeds N]   with planted bug P: succeeds when it is found
 *   sim --plants                all planted bugs, each of which must be found
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "scheduler/plant.h"
#include "tests/sim/memory.h"
#include "tests/sim/sim.h"
#include "tests/sim/world.h"

enum { SEEDS_DEFAULT = 10000, PLANT_SEEDS = 1000, COVERS_ALL = 3000 };

int dt_planted;

static struct {
    int64_t seeds, from, seed, plant, seconds;
    bool plants;
} option = {.from = 1};

static void run_seed(uint64_t seed) {
    sim_memory_start();
    sim_check_start_seed();
    sim_files_start();
    sim_world_run(seed, sim_client_main, sim_check_quiet, sim_check_step);
    sim_covered[SIM_COVER_allocations_failed] += sim_memory_failures;
    sim_check_replay();
    sim_check_release();
    sim_memory_check();
}

static double seconds(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static const char *const cover_names[] = {
#define X(name) #name,
    SIM_COVER(X)
#undef X
};

static int print_coverage(double took) {
    int missing = 0;
    printf("sim: %" PRId64 " seeds, %" PRId64 " steps, %.1f s, %.0f seeds/s\n",
           sim_covered[SIM_COVER_seeds], sim_steps(), took,
           (double)sim_covered[SIM_COVER_seeds] / took);
    for (int k = 0; k < SIM_COVER_COUNT; k++) {
        printf("  %-22s %12" PRId64 "\n", cover_names[k], sim_covered[k]);
        missing += sim_covered[k] == 0;
    }
    return missing;
}

/* So many seeds, or, when that is 0, for so many seconds. */
static int run_seeds(uint64_t from, int64_t count, double seconds_max) {
    double start = seconds();
    int64_t k = 0;
    while (count > 0 ? k < count : seconds() - start < seconds_max) run_seed(from + (uint64_t)k++);
    int missing = print_coverage(seconds() - start);
    if (k < COVERS_ALL || missing == 0) return EXIT_SUCCESS;
    fprintf(stderr, "sim: %d states were never reached\n", missing);
    return EXIT_FAILURE;
}

/* In a child, whose violation is the success. Returns the number of seeds it took; 0: not found. */
static int64_t find_plant(int plant, uint64_t from, int64_t seeds, bool quiet) {
    fflush(NULL);
    int found[2];
    if (pipe(found) != 0) return 0;
    pid_t child = fork();
    if (child == 0) {
        dt_planted = plant;
        if (quiet && freopen("/dev/null", "w", stderr) == NULL) _exit(2);
        for (int64_t k = 1; k <= seeds; k++) {
            if (write(found[1], &k, sizeof k) != sizeof k) _exit(2);
            run_seed(from + (uint64_t)k - 1);
        }
        _exit(0);
    }
    close(found[1]);
    int64_t last = 0, k;
    while (read(found[0], &k, sizeof k) == sizeof k) last = k;
    close(found[0]);
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : last;
}

static int find_all_plants(uint64_t from, int64_t seeds) {
    int missed = 0;
    for (int plant = 1; plant <= DT_PLANTS; plant++) {
        double start = seconds();
        int64_t took = find_plant(plant, from, seeds, true);
        if (took > 0) {
            printf("sim: planted bug %2d found after %" PRId64 " seeds (%.1f s)\n", plant, took,
                   seconds() - start);
        } else {
            printf("sim: planted bug %2d NOT found in %" PRId64 " seeds\n", plant, seeds);
            missed++;
        }
    }
    return missed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Takes an option, and its value where it has one. */
static bool take_option(char **argv, int argc, int *at) {
    static bool *const flags[] = {&sim_tracing, &option.plants};
    static const char *const flag_names[] = {"--trace", "--plants"};
    static int64_t *const numbers[] = {&option.seeds, &option.from, &option.seed, &option.plant,
                                       &option.seconds};
    static const char *const names[] = {"--seeds", "--from", "--seed", "--plant", "--seconds"};
    for (size_t k = 0; k < sizeof flags / sizeof flags[0]; k++)
        if (strcmp(argv[*at], flag_names[k]) == 0) return *flags[k] = true;
    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) {
        if (strcmp(argv[*at], names[k]) != 0) continue;
        const char *text = *at + 1 < argc ? argv[++*at] : "";
        char *end;
        *numbers[k] = strtoll(text, &end, 10);
        return *text != 0 && *end == 0 && *numbers[k] >= 0;
    }
    return false;
}

int main(int argc, char **argv) {
    for (int k = 1; k < argc; k++) {
        if (take_option(argv, argc, &k)) continue;
        fprintf(stderr, "sim: cannot do anything with '%s'\n", argv[k]);
        return 2;
    }
    sim_kernels_register();
    uint64_t from = (uint64_t)option.from;
    int64_t plant_seeds = option.seeds != 0 ? option.seeds : PLANT_SEEDS;
    if (option.plants) return find_all_plants(from, plant_seeds);
    if (option.seed != 0) { /* with a planted bug, too */
        dt_planted = (int)option.plant;
        return run_seeds((uint64_t)option.seed, 1, 0);
    }
    if (option.plant != 0) {
        int64_t took = find_plant((int)option.plant, from, plant_seeds, false);
        printf("sim: planted bug %d: %s %" PRId64 "\n", (int)option.plant,
               took > 0 ? "found, seeds:" : "not found,", took);
        return took > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    if (option.seeds == 0 && option.seconds == 0) option.seeds = SEEDS_DEFAULT;
    return run_seeds(from, option.seeds, (double)option.seconds);
}
