/* test_op.c: the registry table is consistent, and every schema can be read. */
#include <ctype.h>

#include "runtime/op.h"
#include "tests/c/op_support.h"

START_TEST(ids_names_and_rules) {
    for (int id = 0; id < DT_OP_COUNT; id++) {
        const dt_op *op = &dt_op_table[id];
        ck_assert_int_eq(op->id, id);
        ck_assert_ptr_nonnull(op->rule);
        ck_assert_ptr_nonnull(op->full_name);
        ck_assert_int_le(op->dtypes, DT_DTYPES_FLOATONLY);
        for (int other = 0; other < id; other++)
            ck_assert_str_ne(op->full_name, dt_op_table[other].full_name);
        for (const char *letter = op->api; *letter; letter++)
            ck_assert_msg(strchr("FMIOV", *letter) != NULL, "%s: '%c'", op->full_name, *letter);
        ck_assert(dt_op_has(op, 'M') || !dt_op_has(op, 'I'));
    }
}
END_TEST

/* "T input" | "T? bias=None" | "n alpha=1" */
static void check_parameter(const dt_op *op, const char *text, int length, bool *defaults) {
    ck_assert_msg(strchr("TSnifbsDZLdv", text[0]) != NULL, "%s: kind '%c'", op->full_name, text[0]);
    int at = 1;
    bool optional = text[at] == '?';
    at += optional;
    ck_assert_msg(text[at++] == ' ', "%s: '%.*s'", op->full_name, length, text);
    int name = at;
    while (at < length && (isalnum((unsigned char)text[at]) || text[at] == '_')) at++;
    ck_assert_int_gt(at, name);
    if (at == length) {
        ck_assert_msg(!*defaults, "%s: '%.*s' has no default, one before has", op->full_name,
                      length, text);
        return;
    }
    *defaults = true;
    ck_assert_msg(text[at] == '=' && at + 1 < length, "%s: '%.*s'", op->full_name, length, text);
    if (strncmp(text + at + 1, "None", 4) == 0)
        ck_assert_msg(optional || text[0] == 'd', "%s", op->full_name);
}

START_TEST(schemas) {
    for (int id = 0; id < DT_OP_COUNT; id++) {
        const dt_op *op = &dt_op_table[id];
        int count = 0;
        bool defaults = false, keywords = false;
        for (const char *at = op->schema; *at;) {
            const char *end = strstr(at, ", ");
            int length = end ? (int)(end - at) : (int)strlen(at);
            if (length == 1 && *at == '*') {
                ck_assert(!keywords);
                keywords = true;
                defaults = false;
            } else {
                check_parameter(op, at, length, &defaults);
                count++;
            }
            at += length + (end ? 2 : 0);
        }
        ck_assert_msg(count >= 1 && count <= DT_ARGS_MAX, "%s: %d", op->full_name, count);
        bool tensor_first = op->schema[0] == 'T' || op->schema[0] == 'S';
        ck_assert_msg(tensor_first || !dt_op_has(op, 'M'), "%s: a method of what?", op->full_name);
    }
}
END_TEST

START_TEST(display_names) {
    char name[48], tiny[4];
    ck_assert_str_eq(dt_op_display_name(&dt_op_table[DT_OP_max__dim], name, sizeof name), "max");
    ck_assert_str_eq(dt_op_display_name(&dt_op_table[DT_OP_floor_divide], name, sizeof name),
                     "floor_divide");
    ck_assert_str_eq(dt_op_display_name(&dt_op_table[DT_OP_floor_divide], tiny, sizeof tiny),
                     "flo");
}
END_TEST

START_TEST(default_dtype) {
    ck_assert_int_eq(dt_default_dtype(), DT_F32);
    ck_assert_ok(dt_default_dtype_set(DT_BF16));
    ck_assert_int_eq(dt_default_dtype(), DT_BF16);
    ck_assert_fails(dt_default_dtype_set(DT_I64), DT_E_TYPE,
                    "only floating-point types are supported as the default type");
    ck_assert_int_eq(dt_default_dtype(), DT_BF16);
}
END_TEST

/* Rows that run something have a kernel with what every kernel must have. */
START_TEST(kernels) {
    int with_kernel = 0;
    for (int id = 0; id < DT_OP_COUNT; id++) {
        const dt_kernel *kernel = dt_cpu_device.kernels[id];
        if (!kernel) continue;
        with_kernel++;
        ck_assert_ptr_nonnull(kernel->run);
        ck_assert_ptr_nonnull(kernel->cost_ns);
        ck_assert_msg(kernel->name && kernel->name[0], "%s", dt_op_table[id].full_name);
    }
    ck_assert_int_gt(with_kernel, 100);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("op");
    TEST_CASE(suite, "table", ids_names_and_rules, schemas, display_names, default_dtype, kernels);
    return test_run(suite);
}
