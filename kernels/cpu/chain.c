/* chain.c: building and running register chains, see chain.h.
 *
 * What is left of the elements behind the last whole block is computed as a block too: its memory
 * is copied to and from buffers, for which the chain runs with a table of addresses of its own.
 */
#include "kernels/cpu/chain.h"

#include <string.h>

#include "kernels/cpu/cpuid.h"
#include "runtime/assert.h"

/* ---- what there is -------------------------------------------------------------------------- */

#define SETS(X) X(F32, f32) X(F64, f64) X(I32, i32) X(I64, i64)
#define DECLARE_SET(E, dtype)                                                                      \
    extern const dt__chain_set dt__chain_##dtype##_base, dt__chain_##dtype##_avx2,                 \
        dt__chain_##dtype##_avx512;
SETS(DECLARE_SET)

#define ENTER_SET(E, dtype) [DT_##E] = DT_CPU_VARIANTS(&dt__chain_##dtype),
static const dt__chain_set *const sets[DT_DTYPE_COUNT][DT_CPU_LEVELS] = {SETS(ENTER_SET)};

/* -1: no such form. */
static int form_of(int nin, const dt__chain_operand *operands) {
    static const int8_t two[3][3] = {
        [DT__CHAIN_A] = {DT__CHAIN_FORM_AA, DT__CHAIN_FORM_AM, DT__CHAIN_FORM_AO},
        [DT__CHAIN_M] = {DT__CHAIN_FORM_MA, -1, -1},
        [DT__CHAIN_O] = {DT__CHAIN_FORM_OA, -1, -1},
    };
    static const int8_t behind[3][3] = {
        [DT__CHAIN_A] = {-1, -1, -1},
        [DT__CHAIN_M] = {-1, DT__CHAIN_FORM_AMM, DT__CHAIN_FORM_AMO},
        [DT__CHAIN_O] = {-1, -1, DT__CHAIN_FORM_AOO},
    };
    if (nin == 2) return two[operands[0]][operands[1]];
    if (operands[0] != DT__CHAIN_A) return -1;
    return nin == 1 ? DT__CHAIN_FORM_A : behind[operands[1]][operands[2]];
}

bool dt__chain_knows(dt_dtype dtype, int row) {
    const dt__chain_set *set = sets[dtype][dt_cpu_level_now()];
    return set != NULL && set->steps[row][0] != NULL; /* the first form is always there */
}

bool dt__chain_has(dt_dtype dtype, int row, int nin, const dt__chain_operand *operands) {
    const dt__chain_set *set = sets[dtype][dt_cpu_level_now()];
    int form = set == NULL ? -1 : form_of(nin, operands);
    return form >= 0 && set->steps[row][form] != NULL;
}

/* ---- building ------------------------------------------------------------------------------- */

static dt__chain_insn *insn_new(dt__chain *c, dt__chain_step step, int place) {
    dt__chain_insn *insn = &c->insns[c->count++];
    *insn = (dt__chain_insn){.step = step, .place = {(int16_t)place, (int16_t)place}};
    return insn;
}

static void touch(dt__chain *c, int place, bool stores) {
    DT_ASSERT(place >= 0 && place < DT__CHAIN_PLACES_MAX);
    int m = 0;
    while (m < c->memory_count && c->memory[m] != place) m++;
    DT_ASSERT(m < DT__CHAIN_MEMORY_MAX);
    if (m == c->memory_count) c->memory[c->memory_count++] = (int16_t)place;
    if (stores)
        c->stores |= 1u << m;
    else if (!(c->stores >> m & 1))
        c->loads |= 1u << m;
}

void dt__chain_begin(dt__chain *c, dt_dtype dtype, int place) {
    *c = (dt__chain){.set = sets[dtype][dt_cpu_level_now()], .dtype = (uint8_t)dtype};
    DT_ASSERT(c->set != NULL);
    insn_new(c, c->set->load, place);
    touch(c, place, false);
}

static void set_parameter(dt__ew_slot *to, dt_dtype dtype, const dt_params *params, int k) {
    if (dtype == DT_F32)
        to->f32 = (float)params->f[k];
    else if (dtype == DT_F64)
        to->f64 = params->f[k];
    else if (dtype == DT_I64)
        to->i64 = params->i[k];
    else
        memcpy(to, &(int32_t){(int32_t)params->i[k]}, sizeof(int32_t));
}

/* Makes the last instruction one that does this too. False: there is none. */
static bool join_pair(dt__chain *c, int row, int form, const int16_t *place) {
    dt__chain_insn *last = &c->insns[c->count - 1];
    dt__chain_step pair = row == DT__EW_add ? c->set->mul_add[form] : NULL;
    if (pair == NULL || last->step != c->set->steps[DT__EW_mul][DT__CHAIN_FORM_AO]) return false;
    last->step = pair;
    last->place[1] = place[1];
    if (form == DT__CHAIN_FORM_AM) touch(c, place[1], false);
    return true;
}

void dt__chain_add(dt__chain *c, int row, int nin, const dt__chain_operand *operands,
                   const int16_t *place, const dt_params *params) {
    int form = form_of(nin, operands), next = 0;
    DT_ASSERT(form >= 0 && c->set->steps[row][form] != NULL);
    if (join_pair(c, row, form, place)) return;
    dt__chain_insn *insn = insn_new(c, c->set->steps[row][form], c->insns[0].place[0]);
    for (int k = 0; k < nin; k++) {
        if (operands[k] == DT__CHAIN_A) continue;
        insn->place[next++] = place[k];
        if (operands[k] == DT__CHAIN_M) touch(c, place[k], false);
    }
    for (int k = 0; k < 2; k++) set_parameter(&insn->p[k], (dt_dtype)c->dtype, params, k);
}

void dt__chain_store(dt__chain *c, int place) {
    insn_new(c, c->set->store, place);
    touch(c, place, true);
}

void dt__chain_end(dt__chain *c) {
    dt__chain_insn *last = &c->insns[c->count - 1];
    if (last->step == c->set->store)
        last->step = c->set->store_end;
    else
        insn_new(c, c->set->end, c->insns[0].place[0]);
}

/* ---- running -------------------------------------------------------------------------------- */

/* The elements from byte `done` on: fewer than a block. */
static __attribute__((noinline)) void run_rest(const dt__chain *c, int64_t done, size_t bytes,
                                               char *const *at) {
    _Alignas(64) char block[DT__CHAIN_MEMORY_MAX][DT__CHAIN_BLOCK_BYTES_MAX];
    char *moved[DT__CHAIN_PLACES_MAX]; /* set for the places of this chain only */
    size_t size = (size_t)c->set->block_bytes;
    for (int k = 0; k < c->count; k++)
        for (int q = 0; q < 2; q++) moved[c->insns[k].place[q]] = at[c->insns[k].place[q]];
    for (int m = 0; m < c->memory_count; m++) {
        moved[c->memory[m]] = block[m];
        if (!(c->loads >> m & 1)) continue;
        memcpy(block[m], at[c->memory[m]] + done, bytes);
        memset(block[m] + bytes, 0, size - bytes);
    }
    c->set->run(c->insns, moved, 1);
    for (int m = 0; m < c->memory_count; m++)
        if (c->stores >> m & 1) memcpy(at[c->memory[m]] + done, block[m], bytes);
}

void dt__chain_run(const dt__chain *c, int64_t n, char *const *at) {
    int64_t bytes = n * (int64_t)dt_dtype_size((dt_dtype)c->dtype);
    int64_t blocks = bytes / c->set->block_bytes, done = blocks * c->set->block_bytes;
    c->set->run(c->insns, at, blocks);
    if (done < bytes) run_rest(c, done, (size_t)(bytes - done), at);
}
