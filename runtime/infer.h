/* infer.h: the rule and sharding functions that the rows of ops.def name, declared from the rows
 * themselves. */
#ifndef DT_RUNTIME_INFER_H
#define DT_RUNTIME_INFER_H

#include "runtime/op.h"

#define OP(name, rule, kernel, dtypes, api, schema, shard)                                         \
    dt_status dt_infer_##rule(dt_op_call *c);                                                      \
    void dt_shard_##shard(const struct dt_ask *ask, struct dt_ways *ways);
#include "runtime/ops.def"
#undef OP

#endif
