/* unique.c: the different elements of a tensor, sorted (unique) or as they follow each other
 * (unique_consecutive), with where each element went and how often each occurs.
 *
 * unique sorts keys (keys.h), not elements, and looks elements up again by binary search for the
 * inverse: a sort of pairs would move twice the bytes in every pass.  Keys of at most 32 bits where
 * the dtype allows it.
 *
 * Operands: values (deferred), inverse as params.i[0] says, counts as params.i[1] says (deferred);
 * a contiguous input.
 *
 * U1: each NaN is an element of its own, after all numbers, in the order of their places.
 * U2: of 0.0 and -0.0, one element, the first one's sign stays.
 */
#include <string.h>

#include "kernels/cpu/keys.h"
#include "runtime/alloc.h"
#include "runtime/assert.h"
#include "runtime/kernel.h"

typedef struct outputs {
    dt_tensor *values, *inverse, *counts; /* NULL: not asked for */
} outputs;

static outputs outputs_of(const dt_call *call) {
    int k = 1;
    outputs o = {.values = dt_call_out(call, 0)};
    if (call->params.i[0]) o.inverse = dt_call_out(call, k++);
    if (call->params.i[1]) o.counts = dt_call_out(call, k);
    return o;
}

static dt_status take_outputs(const outputs *o, int64_t count) {
    DT_TRY(dt_tensor_produce(o->values, count));
    return o->counts != NULL ? dt_tensor_produce(o->counts, count) : DT_OK;
}

/* The first zero of the input, as its bits say, in place of the one that stands for all. */
static void restore_zero(const dt_tensor *in, char *value) {
    size_t size = dt_dtype_size((dt_dtype)in->dtype);
    const char *data = dt_tensor_data(in);
    uint64_t zero;
    dt__keys_u64(1, &zero, value, (dt_dtype)in->dtype);
    for (int64_t i = 0; i < in->numel; i++) {
        uint64_t key;
        dt__keys_u64(1, &key, data + (size_t)i * size, (dt_dtype)in->dtype);
        if (key != zero) continue;
        memcpy(value, data + (size_t)i * size, size);
        return;
    }
}

/* ---- sorted ---------------------------------------------------------------------------------- */

/* K: the type of keys; NAN_KEY: what stands for a NaN of a float dtype. */
#define DEFINE_UNIQUE(NAME, K, NAN_KEY)                                                            \
    /* Packs the different keys to the front, with how often each occurs; NaNs stay apart. */      \
    static int64_t pack_##NAME(int64_t n, K *keys, bool floats, int64_t *counts) {                 \
        int64_t unique = 0, from = 0;                                                              \
        for (int64_t i = 1; i <= n; i++) {                                                         \
            if (i < n && keys[i] == keys[from] && !(floats && keys[i] == (NAN_KEY))) continue;     \
            if (counts != NULL) counts[unique] = i - from;                                         \
            keys[unique++] = keys[from];                                                           \
            from = i;                                                                              \
        }                                                                                          \
        return unique;                                                                             \
    }                                                                                              \
    static int64_t count_##NAME(int64_t n, const K *keys, bool floats) {                           \
        int64_t unique = n > 0;                                                                    \
        for (int64_t i = 1; i < n; i++)                                                            \
            unique += keys[i] != keys[i - 1] || (floats && keys[i] == (NAN_KEY));                  \
        return unique;                                                                             \
    }                                                                                              \
    /* The place of key among `count` different ones, all of them numbers; it is there. */         \
    static inline int64_t find_##NAME(const K *keys, int64_t count, K key) {                       \
        const K *base = keys;                                                                      \
        while (count > 1) {                                                                        \
            int64_t half = count / 2;                                                              \
            base += base[half] <= key ? half : 0;                                                  \
            count -= half;                                                                         \
        }                                                                                          \
        return base - keys;                                                                        \
    }                                                                                              \
    static void invert_##NAME(const dt_tensor *in, const K *keys, int64_t unique, int64_t *to) {   \
        dt_dtype dtype = (dt_dtype)in->dtype;                                                      \
        const char *data = dt_tensor_data(in);                                                     \
        bool floats = dt_dtype_is_float(dtype);                                                    \
        int64_t numbers = unique;                                                                  \
        while (floats && numbers > 0 && keys[numbers - 1] == (NAN_KEY)) numbers--;                 \
        int64_t nan = numbers;                                                                     \
        K block[256];                                                                              \
        for (int64_t from = 0; from < in->numel; from += 256) {                                    \
            int64_t n = in->numel - from < 256 ? in->numel - from : 256;                           \
            dt__keys_##NAME(n, block, data + (size_t)from * dt_dtype_size(dtype), dtype);          \
            for (int64_t i = 0; i < n; i++)                                                        \
                to[from + i] = floats && block[i] == (NAN_KEY)                                     \
                                   ? nan++                                                         \
                                   : find_##NAME(keys, numbers, block[i]);                         \
        }                                                                                          \
    }                                                                                              \
    static dt_status unique_##NAME(const outputs *o, const dt_tensor *in, K *keys, K *other) {     \
        dt_dtype dtype = (dt_dtype)in->dtype;                                                      \
        bool floats = dt_dtype_is_float(dtype);                                                    \
        size_t size = dt_dtype_size(dtype);                                                        \
        dt__keys_##NAME(in->numel, keys, dt_tensor_data(in), dtype);                               \
        keys = dt__keys_sort_##NAME(in->numel, keys, other);                                       \
        int64_t unique = count_##NAME(in->numel, keys, floats);                                    \
        DT_TRY(take_outputs(o, unique));                                                           \
        int64_t *counts = o->counts != NULL ? dt_tensor_data(o->counts) : NULL;                    \
        int64_t packed = pack_##NAME(in->numel, keys, floats, counts);                             \
        DT_ASSERT(packed == unique);                                                               \
        char *values = dt_tensor_data(o->values);                                                  \
        K zero_key;                                                                                \
        dt__keys_##NAME(1, &zero_key, &(uint64_t){0}, dtype);                                      \
        for (int64_t i = 0; i < unique; i++) {                                                     \
            bool nan = floats && keys[i] == (NAN_KEY);                                             \
            dt__key_element(nan ? DT__KEY_NAN : keys[i], dtype, values + (size_t)i * size);        \
            if (floats && keys[i] == zero_key) restore_zero(in, values + (size_t)i * size);        \
        }                                                                                          \
        if (o->inverse != NULL) invert_##NAME(in, keys, unique, dt_tensor_data(o->inverse));       \
        return DT_OK;                                                                              \
    }

DEFINE_UNIQUE(u32, uint32_t, UINT32_MAX)
DEFINE_UNIQUE(u64, uint64_t, UINT64_MAX)

/* Bytes are counted, not sorted. */
static dt_status unique_bytes(const outputs *o, const dt_tensor *in) {
    dt_dtype dtype = (dt_dtype)in->dtype;
    const char *data = dt_tensor_data(in);
    int64_t total[256] = {0}, place[256], count = 0;
    uint32_t block[256];
    for (int64_t from = 0; from < in->numel; from += 256) {
        int64_t n = in->numel - from < 256 ? in->numel - from : 256;
        dt__keys_u32(n, block, data + from, dtype);
        for (int64_t i = 0; i < n; i++) total[block[i]]++;
    }
    for (int key = 0; key < 256; key++)
        if (total[key] > 0) place[key] = count++;
    DT_TRY(take_outputs(o, count));
    char *values = dt_tensor_data(o->values);
    int64_t *counts = o->counts != NULL ? dt_tensor_data(o->counts) : NULL;
    int64_t *inverse = o->inverse != NULL ? dt_tensor_data(o->inverse) : NULL;
    for (int key = 0; key < 256; key++) {
        if (total[key] == 0) continue;
        dt__key_element((uint64_t)key, dtype, values + place[key]);
        if (counts != NULL) counts[place[key]] = total[key];
    }
    for (int64_t from = 0; inverse != NULL && from < in->numel; from += 256) {
        int64_t n = in->numel - from < 256 ? in->numel - from : 256;
        dt__keys_u32(n, block, data + from, dtype);
        for (int64_t i = 0; i < n; i++) inverse[from + i] = place[block[i]];
    }
    return DT_OK;
}

static bool is_byte(const dt_tensor *t) { return dt_dtype_size((dt_dtype)t->dtype) == 1; }
static bool is_wide(const dt_tensor *t) { return dt_dtype_size((dt_dtype)t->dtype) > 4; }

/* Two arrays of keys. */
static size_t unique_scratch(const dt_call *call, int parts) {
    (void)parts;
    const dt_tensor *in = dt_call_in(call, 0);
    if (is_byte(in)) return 0;
    return (size_t)in->numel * 2 * (is_wide(in) ? sizeof(uint64_t) : sizeof(uint32_t));
}

static dt_status unique_run(const dt_call *call, const dt_part *part) {
    const dt_tensor *in = dt_call_in(call, 0);
    outputs o = outputs_of(call);
    if (in->numel == 0) return take_outputs(&o, 0);
    if (is_byte(in)) return unique_bytes(&o, in);
    if (is_wide(in)) {
        uint64_t *keys = part->scratch;
        return unique_u64(&o, in, keys, keys + in->numel);
    }
    uint32_t *keys = part->scratch;
    return unique_u32(&o, in, keys, keys + in->numel);
}

static double unique_cost(const dt_call *call) {
    const dt_tensor *in = dt_call_in(call, 0);
    double each = is_wide(in) ? 20 : is_byte(in) ? 1.5 : 8;
    return 300 + (double)in->numel * (each + (call->params.i[0] ? 20 : 0));
}

const dt_kernel dt_kernel_unique = {.name = "unique",
                                    .run = unique_run,
                                    .scratch_bytes = unique_scratch,
                                    .cost_ns = unique_cost,
                                    .flags = DT_KERNEL_CONTIGUOUS_IN | DT_KERNEL_CONTIGUOUS_OUT};

/* ---- consecutive ----------------------------------------------------------------------------- */

/* E: the bits of an element; C: how it is compared, so that NaN differs from NaN, and -0.0 from 0.0
 * does not. */
#define DEFINE_FOLLOW(NAME, E, C, COMPARED)                                                        \
    static int64_t changes_##NAME(int64_t n, const void *data) {                                   \
        const E *x = data;                                                                         \
        int64_t changes = 0;                                                                       \
        C last = COMPARED(x[0]);                                                                   \
        for (int64_t i = 1; i < n; i++) {                                                          \
            C now = COMPARED(x[i]);                                                                \
            changes += now != last;                                                                \
            last = now;                                                                            \
        }                                                                                          \
        return changes;                                                                            \
    }                                                                                              \
    /* Without branches, which nobody could foresee: what is known of the value so far is written  \
     * again with each of its elements. */                                                         \
    static void follow_##NAME(int64_t n, const void *data, void *values, int64_t *inverse,         \
                              int64_t *counts) {                                                   \
        const E *x = data;                                                                         \
        E *to = values, value = x[0];                                                              \
        C last = COMPARED(value);                                                                  \
        int64_t at = 0, begin = 0;                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                          \
            C now = COMPARED(x[i]);                                                                \
            bool begins = i > 0 && now != last;                                                    \
            last = now;                                                                            \
            at += begins;                                                                          \
            begin = begins ? i : begin;                                                            \
            value = begins ? x[i] : value;                                                         \
            to[at] = value;                                                                        \
            if (inverse != NULL) inverse[i] = at;                                                  \
            if (counts != NULL) counts[at] = i - begin + 1;                                        \
        }                                                                                          \
    }

#define TRUTH(x) ((x) != 0)
#define ITSELF(x) (x)
DEFINE_FOLLOW(bool, uint8_t, bool, TRUTH)
DEFINE_FOLLOW(u8, uint8_t, uint8_t, ITSELF)
DEFINE_FOLLOW(u16, uint16_t, uint16_t, ITSELF)
DEFINE_FOLLOW(u32, uint32_t, uint32_t, ITSELF)
DEFINE_FOLLOW(u64, uint64_t, uint64_t, ITSELF)
DEFINE_FOLLOW(f16, dt_f16, float, dt_f16_to_f32)
DEFINE_FOLLOW(bf16, dt_bf16, float, dt_bf16_to_f32)
DEFINE_FOLLOW(f32, float, float, ITSELF)
DEFINE_FOLLOW(f64, double, double, ITSELF)

typedef struct follower {
    int64_t (*changes)(int64_t n, const void *data);
    void (*follow)(int64_t n, const void *data, void *values, int64_t *inverse, int64_t *counts);
} follower;

#define FOLLOWER(NAME)                                                                             \
    { changes_##NAME, follow_##NAME }
static const follower followers[DT_DTYPE_COUNT] = {
    [DT_BOOL] = FOLLOWER(bool), [DT_U8] = FOLLOWER(u8),     [DT_I8] = FOLLOWER(u8),
    [DT_I16] = FOLLOWER(u16),   [DT_I32] = FOLLOWER(u32),   [DT_I64] = FOLLOWER(u64),
    [DT_F16] = FOLLOWER(f16),   [DT_BF16] = FOLLOWER(bf16), [DT_F32] = FOLLOWER(f32),
    [DT_F64] = FOLLOWER(f64),
};

static dt_status consecutive_run(const dt_call *call, const dt_part *part) {
    (void)part;
    const dt_tensor *in = dt_call_in(call, 0);
    const follower *f = &followers[in->dtype];
    outputs o = outputs_of(call);
    if (in->numel == 0) return take_outputs(&o, 0);
    const void *data = dt_tensor_data(in);
    DT_TRY(take_outputs(&o, f->changes(in->numel, data) + 1));
    int64_t *inverse = o.inverse != NULL ? dt_tensor_data(o.inverse) : NULL;
    int64_t *counts = o.counts != NULL ? dt_tensor_data(o.counts) : NULL;
    f->follow(in->numel, data, dt_tensor_data(o.values), inverse, counts);
    return DT_OK;
}

static double consecutive_cost(const dt_call *call) {
    return 200 + 3.0 * (double)dt_call_in(call, 0)->numel;
}

const dt_kernel dt_kernel_unique_consecutive = {.name = "unique_consecutive",
                                                .run = consecutive_run,
                                                .cost_ns = consecutive_cost,
                                                .flags = DT_KERNEL_CONTIGUOUS_IN |
                                                         DT_KERNEL_CONTIGUOUS_OUT};
