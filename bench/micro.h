/* micro.h: what the C micro-benchmarks share: options, timing, statistics, the table, JSON.
 *
 *   micro_begin(argc, argv, "title");
 *   micro_run("what", items, body, context);            a sample is one call of body
 *   micro_each("what", samples, count, 1);              or: times that the program took itself
 *   micro_rate("GB/s", amount);                         a further column of the last row
 *   return micro_end();
 *
 * A body is called some times untimed, then `samples` times; a row shows the median and the
 * quartiles of the time of one item, in nanoseconds.  Medians, as the machines are shared: a
 * neighbour makes single samples longer, never shorter.  What must not be optimised away goes
 * through micro_keep.  A failure ends the program: these are no tests.
 *
 * --quick takes about a tenth of the samples; --json FILE writes the rows too, as one object
 * {"title": ..., "rows": [{"name", "items", "samples", "ns", "ns_q1", "ns_q3", "rate", "unit"}]}.
 */
#ifndef DT_BENCH_MICRO_H
#define DT_BENCH_MICRO_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/status.h"
#include "scheduler/futex.h"

#define MICRO_UNUSED __attribute__((unused))
#define MICRO_ROWS_MAX 128
#define MICRO_SAMPLES 31
#define MICRO_SAMPLES_QUICK 5
#define MICRO_WARM 2

typedef struct micro_row {
    char name[64];
    int64_t items;
    int samples;
    double ns, ns_q1, ns_q3; /* of one item */
    double rate;             /* 0: none */
    const char *unit;
} micro_row;

static struct {
    const char *title;
    const char *json; /* path, or NULL */
    bool quick;
    int count;
    bool open; /* the last row's line is not ended yet */
    micro_row rows[MICRO_ROWS_MAX];
} micro;

static MICRO_UNUSED _Noreturn void micro_die(const char *what) {
    const char *text = dt_error_text();
    fprintf(stderr, "%s: %s%s%s\n", micro.title, what, text[0] ? ": " : "", text);
    exit(1);
}

static MICRO_UNUSED void micro_ok(dt_status status, const char *what) {
    if (status != DT_OK) micro_die(what);
}
#define MICRO_OK(expr) micro_ok(expr, #expr)

/* The compiler takes it that memory behind p is read and written here. */
static MICRO_UNUSED void micro_keep(void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }

static MICRO_UNUSED void *micro_alloc(size_t size) {
    void *block = malloc(size);
    if (block == NULL) micro_die("out of memory");
    return block;
}

static MICRO_UNUSED void micro_begin(int argc, char **argv, const char *title) {
    micro.title = title;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            micro.quick = true;
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            micro.json = argv[++i];
        } else {
            fprintf(stderr, "usage: %s [--quick] [--json FILE]\n", argv[0]);
            exit(2);
        }
    }
    printf("%-46s %12s %25s\n", title, "ns/item", "quartiles");
}

/* `full`, or about a tenth of it with --quick. */
static MICRO_UNUSED int micro_samples(int full) {
    if (!micro.quick) return full;
    return full / 10 > MICRO_SAMPLES_QUICK ? full / 10 : MICRO_SAMPLES_QUICK;
}

static int micro_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nearest rank; sorted samples. */
static double micro_percentile(const double *sorted, int count, int percent) {
    int rank = (count * percent + 99) / 100;
    return sorted[rank > 0 ? rank - 1 : 0];
}

static void micro_end_line(void) {
    if (micro.open) printf("\n");
    micro.open = false;
    fflush(stdout);
}

/* A row from `count` times in ns, each of `items` items. Sorts them. */
static MICRO_UNUSED void micro_each(const char *name, double *samples, int count, int64_t items) {
    if (micro.count == MICRO_ROWS_MAX) micro_die("too many rows");
    qsort(samples, (size_t)count, sizeof samples[0], micro_compare);
    micro_end_line();
    micro_row *row = &micro.rows[micro.count++];
    snprintf(row->name, sizeof row->name, "%s", name);
    row->items = items;
    row->samples = count;
    row->ns = micro_percentile(samples, count, 50) / (double)items;
    row->ns_q1 = micro_percentile(samples, count, 25) / (double)items;
    row->ns_q3 = micro_percentile(samples, count, 75) / (double)items;
    int decimals = row->ns < 10 ? 3 : row->ns < 10000 ? 1 : 0;
    printf("%-46s %12.*f %12.*f..%-11.*f", row->name, decimals, row->ns, decimals, row->ns_q1,
           decimals, row->ns_q3);
    micro.open = true;
}

/* `amount` for each item of the last row, by its median: bytes give GB/s, flops GFLOP/s. */
static MICRO_UNUSED void micro_rate(const char *unit, double amount) {
    micro_row *row = &micro.rows[micro.count - 1];
    row->rate = amount / row->ns;
    row->unit = unit;
    printf("  %8.2f %s", row->rate, unit);
}

static MICRO_UNUSED void micro_run(const char *name, int64_t items, void (*body)(void *context),
                                   void *context) {
    int count = micro_samples(MICRO_SAMPLES);
    double samples[MICRO_SAMPLES];
    for (int i = 0; i < MICRO_WARM; i++) body(context);
    for (int i = 0; i < count; i++) {
        int64_t begin_ns = dt_clock_ns();
        body(context);
        samples[i] = (double)(dt_clock_ns() - begin_ns);
    }
    micro_each(name, samples, count, items);
}

/* The program's exit status. */
static MICRO_UNUSED int micro_end(void) {
    micro_end_line();
    if (micro.json == NULL) return 0;
    FILE *file = fopen(micro.json, "w");
    if (file == NULL) {
        perror(micro.json);
        return 1;
    }
    fprintf(file, "{\"title\": \"%s\", \"rows\": [", micro.title);
    for (int i = 0; i < micro.count; i++) {
        const micro_row *row = &micro.rows[i];
        fprintf(file,
                "%s\n {\"name\": \"%s\", \"items\": %lld, \"samples\": %d, \"ns\": %.6g, "
                "\"ns_q1\": %.6g, \"ns_q3\": %.6g",
                i > 0 ? "," : "", row->name, (long long)row->items, row->samples, row->ns,
                row->ns_q1, row->ns_q3);
        if (row->unit != NULL)
            fprintf(file, ", \"rate\": %.6g, \"unit\": \"%s\"", row->rate, row->unit);
        fprintf(file, "}");
    }
    fprintf(file, "\n]}\n");
    return fclose(file) == 0 ? 0 : 1;
}

#endif
