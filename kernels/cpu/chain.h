/* chain.h: element-wise steps computed one on the other in registers.
 *
 * In a pass many a call takes the result of the one before, which nobody else needs.  A chain
 * computes a run of such calls on one block of elements at a time without storing what lies in
 * between: a tile function would load and store every operand, and on many CPUs it is that which
 * takes the time.
 *
 * A chain is threaded code.  Its instructions are functions that take the block in eight vector
 * registers as arguments, apply one expression to them, and end in a jump to the next one:
 *     load x; mul 2; add 1; add y; relu; store out; end
 * They are made from the rows of kernels/ew.def, the expressions of the tile functions
 * (simd/chain_steps.inc), for each form that the operands can have beside the accumulators.
 * mul and add, which so often follow each other, are one instruction where they do.
 *
 * Operands are places: indices into the table of addresses with which the chain is run.
 *
 * I1: the same bits as those of the tile functions, wherever in a block an element lies.
 * I2: an element is loaded by all the instructions that need it before one overwrites it, as long
 *     as the calls in their order do so: blocks follow each other and touch only themselves.
 * I3: a chain is run by the instruction set for which it was built.
 */
#ifndef DT_KERNELS_CPU_CHAIN_H
#define DT_KERNELS_CPU_CHAIN_H

#include "kernels/cpu/elementwise.h"

#define DT__CHAIN_PLACES_MAX 384      /* of the table of addresses */
#define DT__CHAIN_MEMORY_MAX 16       /* different places that one chain loads from or stores to */
#define DT__CHAIN_BLOCK_BYTES_MAX 512 /* of one operand of a block */

/* Operands of an expression: A is the accumulators, M elements that lie one behind the other, O one
 * element for all. */
typedef enum dt__chain_operand { DT__CHAIN_A, DT__CHAIN_M, DT__CHAIN_O } dt__chain_operand;

/* The forms that have a function, by number of operands. */
enum { DT__CHAIN_FORM_A };
enum {
    DT__CHAIN_FORM_AA,
    DT__CHAIN_FORM_AM,
    DT__CHAIN_FORM_MA,
    DT__CHAIN_FORM_AO,
    DT__CHAIN_FORM_OA
};
enum { DT__CHAIN_FORM_AOO, DT__CHAIN_FORM_AMO, DT__CHAIN_FORM_AMM };
#define DT__CHAIN_FORMS 5

/* In truth it takes eight vectors, the instruction, the table of addresses and a place in bytes. */
typedef void (*dt__chain_step)(void);

typedef struct dt__chain_insn {
    dt__chain_step step;
    int16_t place[2]; /* of the operands M and O, in the order of the expression */
    dt__ew_slot p[2]; /* the parameters p0 and p1 */
} dt__chain_insn;

/* What one instruction set has for one dtype. */
typedef struct dt__chain_set {
    dt__chain_step load, store, end, store_end; /* the last one is two in one */
    void (*run)(const dt__chain_insn *first, char *const *at, int64_t blocks);
    int64_t block_bytes;
    dt__chain_step steps[DT__EW_ROWS][DT__CHAIN_FORMS]; /* NULL: none */
    dt__chain_step mul_add[DT__CHAIN_FORMS]; /* mul in form AO, then add in this one; NULL: none */
} dt__chain_set;

typedef struct dt__chain {
    const dt__chain_set *set;
    uint8_t dtype;
    uint8_t memory_count;
    int16_t memory[DT__CHAIN_MEMORY_MAX]; /* the places of the operands M, loads and stores */
    uint32_t loads, stores;               /* of these: loaded before they are stored; stored */
    int count;
    dt__chain_insn insns[];
} dt__chain;

/* Nanoseconds that it saves not to store a byte of a result and to load it again. */
#define DT__CHAIN_SAVED_NS 0.01

/* Whether there are instructions for that expression. */
bool dt__chain_knows(dt_dtype dtype, int row);
/* Whether there is one for it with these operands. */
bool dt__chain_has(dt_dtype dtype, int row, int nin, const dt__chain_operand *operands);

/* Building: begin, then add and store as often as needed, then end.  The block has to have the
 * bytes for all instructions; begin and end count as one each. */
static inline size_t dt__chain_bytes(int insns) {
    return sizeof(dt__chain) + (size_t)insns * sizeof(dt__chain_insn);
}
void dt__chain_begin(dt__chain *c, dt_dtype dtype, int place);
/* place[k] of what is not A; params as the tile function takes them. */
void dt__chain_add(dt__chain *c, int row, int nin, const dt__chain_operand *operands,
                   const int16_t *place, const dt_params *params);
void dt__chain_store(dt__chain *c, int place);
void dt__chain_end(dt__chain *c);

/* n elements of all places that are memory, from their addresses on. Any thread. */
void dt__chain_run(const dt__chain *c, int64_t n, char *const *at);

#endif
