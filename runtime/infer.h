/* infer.h: the rule functions that the rows of ops.def name, declared from the rows themselves. */
#ifndef DT_RUNTIME_INFER_H
#define DT_RUNTIME_INFER_H

#include "runtime/op.h"

#define OP(name, rule, kernel, dtypes, api, schema) dt_status dt_infer_##rule(dt_op_call *c);
#include "runtime/ops.def"
#undef OP

#endif
