/* test_graveyard.c: order, notification, nested burials, many producers. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "runtime/graveyard.h"
#include "tests/c/test_support.h"

typedef struct body {
    dt_grave grave;
    int number;
} body;

static int buried[64];
static int buried_count;
static _Atomic(int) notified;

static void bury(dt_grave *grave) {
    body *b = (body *)grave;
    if (buried_count < 64) buried[buried_count] = b->number;
    buried_count++;
    free(b);
}

static void post(int number, void (*how)(dt_grave *)) {
    body *b = malloc(sizeof *b);
    *b = (body){.grave = {.bury = how}, .number = number};
    dt_graveyard_post(&b->grave);
}

static void notify(void) { atomic_fetch_add(&notified, 1); }

START_TEST(buries_in_order_and_once) {
    dt_graveyard_drain();
    ck_assert_int_eq(buried_count, 0);
    for (int k = 0; k < 5; k++) post(k, bury);
    ck_assert_int_eq(buried_count, 0);
    dt_graveyard_drain();
    dt_graveyard_drain();
    ck_assert_int_eq(buried_count, 5);
    for (int k = 0; k < 5; k++) ck_assert_int_eq(buried[k], k);
}
END_TEST

START_TEST(notifies_when_it_turns_non_empty) {
    post(0, bury); /* nobody to notify yet */
    dt_graveyard_drain();
    dt_graveyard_set_notify(notify);
    for (int k = 0; k < 3; k++) post(k, bury);
    ck_assert_int_eq(notified, 1);
    dt_graveyard_drain();
    post(3, bury);
    ck_assert_int_eq(notified, 2);
    dt_graveyard_drain();
    dt_graveyard_set_notify(NULL);
    post(4, bury);
    ck_assert_int_eq(notified, 2);
    dt_graveyard_drain();
}
END_TEST

static void bury_and_post(dt_grave *grave) {
    int number = ((body *)grave)->number;
    bury(grave);
    if (number > 0) post(number - 1, bury_and_post);
    if (number == 2) dt_graveyard_drain(); /* a destructor that runs client code */
}

START_TEST(burials_may_post_and_drain) {
    post(4, bury_and_post);
    dt_graveyard_drain();
    ck_assert_int_eq(buried_count, 5);
    for (int k = 0; k < 5; k++) ck_assert_int_eq(buried[k], 4 - k);
    ck_assert_ptr_null(dt_graveyard_head);
}
END_TEST

enum { PRODUCERS = 4, EACH = 5000 };

static int last_of[PRODUCERS];

static void bury_counted(dt_grave *grave) {
    body *b = (body *)grave;
    int producer = b->number / EACH, k = b->number % EACH;
    require(k == last_of[producer]); /* each producer's order is kept */
    last_of[producer]++;
    buried_count++;
    free(b);
}

static void *produce(void *context) {
    int producer = *(int *)context;
    for (int k = 0; k < EACH; k++) post(producer * EACH + k, bury_counted);
    return NULL;
}

START_TEST(many_producers_one_drain) {
    pthread_t threads[PRODUCERS];
    int numbers[PRODUCERS];
    dt_graveyard_set_notify(notify);
    for (int p = 0; p < PRODUCERS; p++) {
        numbers[p] = p;
        ck_assert_int_eq(pthread_create(&threads[p], NULL, produce, &numbers[p]), 0);
    }
    while (buried_count < PRODUCERS * EACH) dt_graveyard_drain();
    for (int p = 0; p < PRODUCERS; p++) pthread_join(threads[p], NULL);
    dt_graveyard_drain();
    ck_assert_int_eq(buried_count, PRODUCERS * EACH);
    ck_assert_int_ge(notified, 1);
    dt_graveyard_set_notify(NULL);
}
END_TEST

static void reset(void) {
    buried_count = 0;
    atomic_store(&notified, 0);
    for (int p = 0; p < PRODUCERS; p++) last_of[p] = 0;
}

int main(void) {
    Suite *suite = suite_create("graveyard");
    TCase *tcase = tcase_create("graveyard");
    tcase_add_checked_fixture(tcase, reset, NULL);
    tcase_add_test(tcase, buries_in_order_and_once);
    tcase_add_test(tcase, notifies_when_it_turns_non_empty);
    tcase_add_test(tcase, burials_may_post_and_drain);
    tcase_add_test(tcase, many_producers_one_drain);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
