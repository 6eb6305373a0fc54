/* micro_mpsc.c: the queue between threads: pushed and taken by one, and by several at once. */
#include <pthread.h>
#include <sched.h>

#include "bench/micro.h"
#include "scheduler/mpsc.h"

#define BATCH 1000
#define PUSHES 100000 /* of each producer */
#define PRODUCERS_MAX 4

typedef struct box {
    dt_mpsc queue;
    dt_gate gate;
    dt_mpsc_node nodes[BATCH];
} box;

static void push_one_take_one(void *context) {
    box *b = context;
    for (int i = 0; i < BATCH; i++) {
        dt_mpsc_push(&b->queue, &b->nodes[i]);
        micro_keep(dt_mpsc_take(&b->queue));
    }
}

static void push_all_take_all(void *context) {
    box *b = context;
    for (int i = 0; i < BATCH; i++) dt_mpsc_push(&b->queue, &b->nodes[i]);
    int64_t taken = 0;
    for (dt_mpsc_node *node = dt_mpsc_take(&b->queue); node != NULL; node = node->next) taken++;
    if (taken != BATCH) micro_die("nodes are missing");
}

/* What a producer pays while the consumer is awake. */
static void knock_open(void *context) {
    box *b = context;
    for (int i = 0; i < BATCH; i++)
        if (dt_gate_knock(&b->gate)) micro_die("the gate was closed");
}

/* ---- several producers, one consumer that takes until it has all */

typedef struct producer {
    pthread_t thread;
    dt_mpsc *queue;
    dt_mpsc_node *nodes;
} producer;

typedef struct crowd {
    dt_mpsc queue;
    int producers;
    producer each[PRODUCERS_MAX];
} crowd;

static void *produce(void *context) {
    producer *p = context;
    for (int i = 0; i < PUSHES; i++) dt_mpsc_push(p->queue, &p->nodes[i]);
    return NULL;
}

static void crowd_run(void *context) {
    crowd *c = context;
    for (int p = 0; p < c->producers; p++)
        if (pthread_create(&c->each[p].thread, NULL, produce, &c->each[p]) != 0)
            micro_die("no thread");
    for (int64_t taken = 0; taken < (int64_t)PUSHES * c->producers;) {
        dt_mpsc_node *node = dt_mpsc_take(&c->queue);
        if (node == NULL) sched_yield();
        for (; node != NULL; node = node->next) taken++;
    }
    for (int p = 0; p < c->producers; p++) pthread_join(c->each[p].thread, NULL);
}

int main(int argc, char **argv) {
    micro_begin(argc, argv, "mpsc queue");
    static box b;
    micro_run("push one, take one", BATCH, push_one_take_one, &b);
    micro_run("push 1,000, take all", BATCH, push_all_take_all, &b);
    micro_run("knock at an open gate", BATCH, knock_open, &b);
    for (int producers = 1; producers <= PRODUCERS_MAX; producers *= 2) {
        crowd *c = micro_alloc(sizeof *c);
        memset(c, 0, sizeof *c);
        c->producers = producers;
        for (int p = 0; p < producers; p++)
            c->each[p] =
                (producer){.queue = &c->queue, .nodes = micro_alloc(sizeof(dt_mpsc_node) * PUSHES)};
        char name[64];
        snprintf(name, sizeof name, "%d producer%s, one consumer", producers,
                 producers > 1 ? "s" : "");
        micro_run(name, (int64_t)PUSHES * producers, crowd_run, c);
        for (int p = 0; p < producers; p++) free(c->each[p].nodes);
        free(c);
    }
    return micro_end();
}
