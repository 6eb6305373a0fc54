/* gemm_tile.h: tiles and dot products of one float type for one instruction set; included by
 * gemm_f32.c and gemm_f64.c, which define
 *     GT_TYPE   float or double
 *     GT_INDEX  an integer of the same size
 *     GT_VEC    gv_f32 or gv_f64
 *     GT_LANES  its lanes
 *     GT(name)  the vector function gv_<type>_<name>
 *     GT_TABLE  the dt__gemm_ops to define
 *
 * A tile keeps MR x NR vectors of sums in registers.  Its rows are addressed as three to a base
 * register (base, base + stride, base + 2 * stride), because 14 pointers do not fit into the
 * registers there are; GT_HIDE keeps GCC from recomputing the bases from each other, which it
 * would spill.
 *
 * T1: an element's sum starts from c (or 0) and adds k products one after the other, fused where
 *     the level has FMA, whatever the size of the tile: cutting k into blocks changes no bit.
 * T2: a dot product adds lane by lane in steps of GT_LANES, then the lanes; missing ones at the
 *     end are zeros.
 */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd/gemm_vec.h"

#define GT_HIDE(p) __asm__("" : "+r"(p))
#define GT_UNROLL _Pragma("GCC unroll 16")
enum { GT_BASES = (GV_ROWS + 2) / 3, GT_WIDTH = 2 * GT_LANES, GT_ROWS_AHEAD = 24 };

GV_INLINE const GT_TYPE *gt_at(const char *base, int64_t bytes) {
    return (const GT_TYPE *)(const void *)(base + bytes);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

GV_INLINE void gt_tile(const int MR, const int NR, int64_t k, const GT_TYPE *a, int64_t sa,
                       const GT_TYPE *b, int64_t ldb, GT_TYPE *c, int64_t ldc, int last,
                       bool first) {
    GT_VEC acc[GV_ROWS][2];
    const char *base[GT_BASES];
    int64_t stride = sa * (int64_t)sizeof(GT_TYPE);
    GT_UNROLL for (int g = 0; g < (MR + 2) / 3; g++) {
        base[g] = (const char *)a + 3 * g * stride;
        GT_HIDE(base[g]);
    }
    GT_UNROLL for (int i = 0; i < MR; i++) {
        GT_UNROLL for (int j = 0; j < NR; j++) acc[i][j] = GT(zero)();
    }
    if (!first) {
        GT_UNROLL for (int i = 0; i < MR; i++) {
            if (NR == 2) acc[i][0] = GT(load)(c + i * ldc);
            acc[i][NR - 1] = GT(load_n)(c + i * ldc + (NR - 1) * GT_LANES, last);
        }
    }
    for (; k > 0; k--) {
        GT_VEC row[2];
        GT_UNROLL for (int j = 0; j < NR; j++) {
            row[j] = GT(load)(b + j * GT_LANES);
            /* b may come from memory; with few tiles for each panel that is what takes time. */
            __builtin_prefetch(b + GT_ROWS_AHEAD * ldb + j * GT_LANES);
        }
        GT_UNROLL for (int i = 0; i < MR; i++) {
            GT_VEC x = GT(set)(*gt_at(base[i / 3], (i % 3) * stride));
            GT_UNROLL for (int j = 0; j < NR; j++) acc[i][j] = GT(fma)(x, row[j], acc[i][j]);
        }
        GT_UNROLL for (int g = 0; g < (MR + 2) / 3; g++) {
            base[g] += sizeof(GT_TYPE);
            GT_HIDE(base[g]);
        }
        b += ldb;
    }
    GT_UNROLL for (int i = 0; i < MR; i++) {
        if (NR == 2) GT(store)(c + i * ldc, acc[i][0]);
        GT(store_n)(c + i * ldc + (NR - 1) * GT_LANES, acc[i][NR - 1], last);
    }
}

typedef void gt_tile_fn(int64_t k, const GT_TYPE *a, int64_t sa, const GT_TYPE *b, int64_t ldb,
                        GT_TYPE *c, int64_t ldc, int last, bool first);

#define GT_TILE(MR, NR)                                                                            \
    static void gt_tile_##MR##_##NR(int64_t k, const GT_TYPE *a, int64_t sa, const GT_TYPE *b,     \
                                    int64_t ldb, GT_TYPE *c, int64_t ldc, int last, bool first) {  \
        gt_tile(MR, NR, k, a, sa, b, ldb, c, ldc, last, first);                                    \
    }
#define GT_TILE_NAME(MR, NR) [NR - 1][MR - 1] = gt_tile_##MR##_##NR,
#if DT_ISA_LEVEL == 2
#define GT_TILES(X, NR)                                                                            \
    X(1, NR)                                                                                       \
    X(2, NR)                                                                                       \
    X(3, NR) X(4, NR) X(5, NR) X(6, NR) X(7, NR) X(8, NR) X(9, NR) X(10, NR) X(11, NR) X(12, NR)   \
        X(13, NR) X(14, NR)
#elif DT_ISA_LEVEL == 1
#define GT_TILES(X, NR) X(1, NR) X(2, NR) X(3, NR) X(4, NR) X(5, NR) X(6, NR)
#else
#define GT_TILES(X, NR) X(1, NR) X(2, NR) X(3, NR) X(4, NR)
#endif
GT_TILES(GT_TILE, 1)
GT_TILES(GT_TILE, 2)

static gt_tile_fn *const gt_tiles[2][GV_ROWS] = {GT_TILES(GT_TILE_NAME, 1)
                                                     GT_TILES(GT_TILE_NAME, 2)};

static void gt_panel(int64_t m, int64_t k, const void *a_, int64_t sa, const void *b, int64_t ldb,
                     void *c_, int64_t ldc, int nc, bool first) {
    const GT_TYPE *a = a_;
    GT_TYPE *c = c_;
    int vectors = nc > GT_LANES ? 2 : 1, last = nc - (vectors - 1) * GT_LANES;
    /* Tiles of nearly equal heights: one of 14 and one of 2 would take longer than two of 8. */
    for (int64_t left = (m + GV_ROWS - 1) / GV_ROWS; left > 0; left--) {
        int64_t rows = (m + left - 1) / left;
        gt_tiles[vectors - 1][rows - 1](k, a, sa, b, ldb, c, ldc, last, first);
        a += rows * sa;
        c += rows * ldc;
        m -= rows;
    }
}

/* ---- dot products ---------------------------------------------------------------------------- */

enum {
    GT_DOT_ROWS = DT_ISA_LEVEL == 2 ? 7 : 4,
    GT_AHEAD = 12288
}; /* bytes that w is fetched early */

typedef struct gt_out {
    GT_TYPE *y;
    int64_t sym, syn;
    const dt__gemm_end *end;
    int64_t i, j; /* of the tile's first element, for the bias */
} gt_out;

GV_INLINE void gt_put(const gt_out *o, int i, int j, GT_TYPE sum) {
    const dt__gemm_end *e = o->end;
    GT_TYPE v = (GT_TYPE)e->alpha * sum;
    if (e->bias)
        v += (GT_TYPE)e->beta *
             ((const GT_TYPE *)e->bias)[(o->i + i) * e->bias_m + (o->j + j) * e->bias_n];
    o->y[i * o->sym + j * o->syn] = v;
}

/* M rows of x against R rows of w. */
GV_INLINE void gt_dot_tile(const int M, const int R, int64_t k, const GT_TYPE *x, int64_t sx,
                           const GT_TYPE *w, int64_t sw, const gt_out *o) {
    GT_VEC acc[8][8];
    const char *bx[3], *bw[3];
    int64_t stride_x = sx * (int64_t)sizeof(GT_TYPE), stride_w = sw * (int64_t)sizeof(GT_TYPE);
    GT_UNROLL for (int g = 0; g < (M + 2) / 3; g++) {
        bx[g] = (const char *)x + 3 * g * stride_x;
        GT_HIDE(bx[g]);
    }
    GT_UNROLL for (int g = 0; g < (R + 2) / 3; g++) {
        bw[g] = (const char *)w + 3 * g * stride_w;
        GT_HIDE(bw[g]);
    }
    GT_UNROLL for (int r = 0; r < R; r++) {
        GT_UNROLL for (int i = 0; i < M; i++) acc[r][i] = GT(zero)();
    }
    for (; k >= GT_LANES; k -= GT_LANES) {
        GT_VEC row[8];
        GT_UNROLL for (int r = 0; r < R; r++) {
            const GT_TYPE *p = gt_at(bw[r / 3], (r % 3) * stride_w);
            row[r] = GT(load)(p);
            __builtin_prefetch((const char *)p + GT_AHEAD);
        }
        GT_UNROLL for (int i = 0; i < M; i++) {
            GT_VEC v = GT(load)(gt_at(bx[i / 3], (i % 3) * stride_x));
            GT_UNROLL for (int r = 0; r < R; r++) acc[r][i] = GT(fma)(row[r], v, acc[r][i]);
        }
        GT_UNROLL for (int g = 0; g < (M + 2) / 3; g++) {
            bx[g] += GT_LANES * sizeof(GT_TYPE);
            GT_HIDE(bx[g]);
        }
        GT_UNROLL for (int g = 0; g < (R + 2) / 3; g++) {
            bw[g] += GT_LANES * sizeof(GT_TYPE);
            GT_HIDE(bw[g]);
        }
    }
    if (k > 0) {
        GT_UNROLL for (int r = 0; r < R; r++) {
            GT_VEC v = GT(load_n)(gt_at(bw[r / 3], (r % 3) * stride_w), (int)k);
            GT_UNROLL for (int i = 0; i < M; i++) acc[r][i] =
                GT(fma)(v, GT(load_n)(gt_at(bx[i / 3], (i % 3) * stride_x), (int)k), acc[r][i]);
        }
    }
    GT_UNROLL for (int i = 0; i < M; i++) {
        GT_UNROLL for (int r = 0; r < R; r++) gt_put(o, i, r, GT(sum)(acc[r][i]));
    }
}

typedef void gt_dot_fn(int64_t k, const GT_TYPE *x, int64_t sx, const GT_TYPE *w, int64_t sw,
                       const gt_out *o);

#define GT_DOT(M, R)                                                                               \
    static void gt_dot_##M##_##R(int64_t k, const GT_TYPE *x, int64_t sx, const GT_TYPE *w,        \
                                 int64_t sw, const gt_out *o) {                                    \
        gt_dot_tile(M, R, k, x, sx, w, sw, o);                                                     \
    }
#define GT_DOT_PAIR(M, R) [M - 1] = {gt_dot_##M##_1, gt_dot_##M##_##R, R},
/* How many rows of w go with M rows of x: as many as the registers hold. */
#if DT_ISA_LEVEL == 2
#define GT_DOTS(X) X(1, 8) X(2, 8) X(3, 6) X(4, 5) X(5, 4) X(6, 4) X(7, 3)
#else
#define GT_DOTS(X) X(1, 6) X(2, 4) X(3, 3) X(4, 2)
#endif
#define GT_DOT_ONE(M, R) GT_DOT(M, 1)
GT_DOTS(GT_DOT)
GT_DOTS(GT_DOT_ONE)

static const struct {
    gt_dot_fn *one, *several;
    int count;
} gt_dots[GT_DOT_ROWS] = {GT_DOTS(GT_DOT_PAIR)};

/* Rows of w [from, to) against all rows of x, in groups of nearly equal height. */
static void gt_dot_group(int64_t m, bool several, int64_t k, const GT_TYPE *x, int64_t sx,
                         const GT_TYPE *w, int64_t sw, gt_out o) {
    o.i = 0;
    for (int64_t left = (m + GT_DOT_ROWS - 1) / GT_DOT_ROWS; left > 0; left--) {
        int64_t rows = (m + left - 1) / left;
        gt_dot_fn *fn = several ? gt_dots[rows - 1].several : gt_dots[rows - 1].one;
        fn(k, x, sx, w, sw, &o);
        x += rows * sx;
        o.y += rows * o.sym;
        o.i += rows;
        m -= rows;
    }
}

/* The rows of w that all of the groups of m rows of x can take at once. */
static int64_t gt_dot_step(int64_t m) {
    int64_t groups = (m + GT_DOT_ROWS - 1) / GT_DOT_ROWS;
    int64_t high = (m + groups - 1) / groups, low = m / groups;
    return gt_dots[high - 1].count == gt_dots[low - 1].count ? gt_dots[high - 1].count : 0;
}

static void gt_dot_some(int64_t m, int64_t n, int64_t step, int64_t k, const GT_TYPE *x, int64_t sx,
                        const GT_TYPE *w, int64_t sw, gt_out o) {
    while (o.j < n) {
        bool several = step > 1 && o.j + step <= n;
        gt_dot_group(m, several, k, x, sx, w, sw, o);
        int64_t done = several ? step : 1;
        w += done * sw;
        o.y += done * o.syn;
        o.j += done;
    }
}

static void gt_dot(int64_t m, int64_t n, int64_t k, const void *x_, int64_t sx, const void *w,
                   int64_t sw, void *y, int64_t sym, int64_t syn, const dt__gemm_end *end) {
    const GT_TYPE *x = x_;
    gt_out o = {.y = y, .sym = sym, .syn = syn, .end = end};
    if (m == 0) return;
    int64_t step = gt_dot_step(m);
    if (step) {
        gt_dot_some(m, n, step, k, x, sx, w, sw, o);
        return;
    }
    /* Heights that differ in their step: one after the other, w is read again from near caches. */
    dt__gemm_end rest = *end;
    for (int64_t left = (m + GT_DOT_ROWS - 1) / GT_DOT_ROWS; left > 0; left--) {
        int64_t rows = (m + left - 1) / left;
        o.end = &rest;
        gt_dot_some(rows, n, gt_dots[rows - 1].count, k, x, sx, w, sw, o);
        x += rows * sx;
        o.y += rows * sym;
        if (rest.bias) rest.bias = (const GT_TYPE *)rest.bias + rows * rest.bias_m;
        m -= rows;
    }
}

/* ---- packing, finishing ---------------------------------------------------------------------- */

/* 4 x 4 of rows that are contiguous along k into columns of a panel. */
GV_INLINE void gt_transpose4(const GT_TYPE *b, int64_t sbn, GT_TYPE *to) {
    typedef GT_TYPE four __attribute__((vector_size(4 * sizeof(GT_TYPE))));
    typedef GT_INDEX index __attribute__((vector_size(4 * sizeof(GT_TYPE))));
    four r[4], t[4];
    GT_UNROLL for (int i = 0; i < 4; i++) memcpy(&r[i], b + i * sbn, sizeof r[i]);
    t[0] = __builtin_shuffle(r[0], r[1], (index){0, 4, 1, 5});
    t[1] = __builtin_shuffle(r[2], r[3], (index){0, 4, 1, 5});
    t[2] = __builtin_shuffle(r[0], r[1], (index){2, 6, 3, 7});
    t[3] = __builtin_shuffle(r[2], r[3], (index){2, 6, 3, 7});
    r[0] = __builtin_shuffle(t[0], t[1], (index){0, 1, 4, 5});
    r[1] = __builtin_shuffle(t[0], t[1], (index){2, 3, 6, 7});
    r[2] = __builtin_shuffle(t[2], t[3], (index){0, 1, 4, 5});
    r[3] = __builtin_shuffle(t[2], t[3], (index){2, 3, 6, 7});
    GT_UNROLL for (int i = 0; i < 4; i++) memcpy(to + i * GT_WIDTH, &r[i], sizeof r[i]);
}

static void gt_pack_full(int64_t k, const GT_TYPE *b, int64_t sbk, int64_t sbn, GT_TYPE *to) {
    if (sbn == 1) {
        for (int64_t p = 0; p < k; p++)
            memcpy(to + p * GT_WIDTH, b + p * sbk, sizeof(GT_TYPE) * GT_WIDTH);
        return;
    }
    int64_t p = 0;
    if (sbk == 1 && GT_WIDTH % 4 == 0) {
        for (; p + 4 <= k; p += 4)
            for (int j = 0; j < GT_WIDTH; j += 4)
                gt_transpose4(b + j * sbn + p, sbn, to + p * GT_WIDTH + j);
    }
    for (; p < k; p++)
        for (int j = 0; j < GT_WIDTH; j++) to[p * GT_WIDTH + j] = b[p * sbk + j * sbn];
}

static void gt_pack(int64_t k, int64_t n, const void *b_, int64_t sbk, int64_t sbn, void *to_,
                    int64_t panel_step) {
    const GT_TYPE *b = b_;
    GT_TYPE *to = to_;
    for (; n >= GT_WIDTH; n -= GT_WIDTH) {
        gt_pack_full(k, b, sbk, sbn, to);
        b += GT_WIDTH * sbn;
        to += panel_step;
    }
    if (n == 0) return;
    if (k > 0) memset(to, 0, sizeof(GT_TYPE) * (size_t)(k * GT_WIDTH));
    for (int64_t j = 0; j < n; j++)
        for (int64_t p = 0; p < k; p++) to[p * GT_WIDTH + j] = b[p * sbk + j * sbn];
}

static void gt_finish(int64_t m, int64_t n, void *c_, int64_t ldc, const dt__gemm_end *end) {
    GT_TYPE alpha = (GT_TYPE)end->alpha, beta = (GT_TYPE)end->beta;
    for (int64_t i = 0; i < m; i++) {
        GT_TYPE *c = (GT_TYPE *)c_ + i * ldc;
        if (!end->bias) {
            for (int64_t j = 0; j < n; j++) c[j] = alpha * c[j];
            continue;
        }
        const GT_TYPE *bias = (const GT_TYPE *)end->bias + i * end->bias_m;
        if (end->bias_n == 1) {
            for (int64_t j = 0; j < n; j++) c[j] = alpha * c[j] + beta * bias[j];
        } else {
            for (int64_t j = 0; j < n; j++) c[j] = alpha * c[j] + beta * bias[j * end->bias_n];
        }
    }
}

const dt__gemm_ops GT_TABLE = {
    .width = GT_WIDTH,
    .rows = GV_ROWS,
    .panel = gt_panel,
    .pack = gt_pack,
    .finish = gt_finish,
    .dot = gt_dot,
};
