/* dtype.h: element types, torch's promotion rules, and scalars.
 *
 * DT_DTYPES is the one list of element types; everything that enumerates them expands it.
 */
#ifndef DT_RUNTIME_DTYPE_H
#define DT_RUNTIME_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/status.h"

/* X(enumerator, lower-case name for symbols, C type of storage, category, torch name, long name) */
#define DT_DTYPES(X)                                                                               \
    X(BOOL, bool, uint8_t, BOOL, "bool", "Bool")                                                   \
    X(U8, u8, uint8_t, INT, "uint8", "Byte")                                                       \
    X(I8, i8, int8_t, INT, "int8", "Char")                                                         \
    X(I16, i16, int16_t, INT, "int16", "Short")                                                    \
    X(I32, i32, int32_t, INT, "int32", "Int")                                                      \
    X(I64, i64, int64_t, INT, "int64", "Long")                                                     \
    X(F16, f16, dt_f16, FLOAT, "float16", "Half")                                                  \
    X(BF16, bf16, dt_bf16, FLOAT, "bfloat16", "BFloat16")                                          \
    X(F32, f32, float, FLOAT, "float32", "Float")                                                  \
    X(F64, f64, double, FLOAT, "float64", "Double")

/* Storage of the half types: plain bits, so that no arithmetic on them compiles by accident. */
typedef struct dt_f16 {
    uint16_t bits;
} dt_f16;
typedef struct dt_bf16 {
    uint16_t bits;
} dt_bf16;

typedef enum dt_dtype {
#define X(E, n, ctype, category, name, longname) DT_##E,
    DT_DTYPES(X)
#undef X
        DT_DTYPE_COUNT,
    DT_DTYPE_NONE = 0xff, /* "not given" in arguments */
} dt_dtype;

typedef enum dt_category { DT_CAT_BOOL, DT_CAT_INT, DT_CAT_FLOAT } dt_category;

typedef struct dt_dtype_info {
    const char *name;      /* torch's name: "float32" */
    const char *long_name; /* as torch's messages say it: "Float" */
    uint8_t size;          /* bytes of one element */
    uint8_t category;      /* dt_category */
} dt_dtype_info;

extern const dt_dtype_info dt_dtype_table[DT_DTYPE_COUNT];

static inline size_t dt_dtype_size(dt_dtype t) { return dt_dtype_table[t].size; }
static inline dt_category dt_dtype_category(dt_dtype t) {
    return (dt_category)dt_dtype_table[t].category;
}
static inline bool dt_dtype_is_float(dt_dtype t) { return t >= DT_F16 && t <= DT_F64; }

/* The dtype whose torch name is `name` ("float32", also "float", "half", "long", ...), or
 * DT_DTYPE_NONE. A "torch." prefix is accepted. */
dt_dtype dt_dtype_parse(const char *name);

/* torch.promote_types. */
dt_dtype dt_dtype_promote(dt_dtype a, dt_dtype b);

/* torch.can_cast. */
bool dt_dtype_can_cast(dt_dtype from, dt_dtype to);

/* A Python number. */
typedef struct dt_scalar {
    uint8_t category; /* dt_category */
    union {
        int64_t i; /* DT_CAT_BOOL (0 or 1) and DT_CAT_INT */
        double f;  /* DT_CAT_FLOAT */
    };
} dt_scalar;

static inline double dt_scalar_f64(dt_scalar s) {
    return s.category == DT_CAT_FLOAT ? s.f : (double)s.i;
}
static inline int64_t dt_scalar_i64(dt_scalar s) {
    return s.category == DT_CAT_FLOAT ? (int64_t)s.f : s.i;
}
static inline bool dt_scalar_bool(dt_scalar s) {
    return s.category == DT_CAT_FLOAT ? s.f != 0 : s.i != 0;
}

/* Stores s at dst as an element of dtype; rounds as a C cast (and to nearest even for halves). */
void dt_scalar_store(dt_scalar s, dt_dtype dtype, void *dst);
/* Reads one element. */
dt_scalar dt_scalar_load(dt_dtype dtype, const void *src);

float dt_f16_to_f32(dt_f16 h);
dt_f16 dt_f32_to_f16(float f); /* round to nearest even; NaN stays a quiet NaN */
float dt_bf16_to_f32(dt_bf16 h);
dt_bf16 dt_f32_to_bf16(float f);

#endif
