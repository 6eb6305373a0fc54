/* op.c: the registry table, expanded from ops.def, and the defaults that ops share.
 *
 * I1: dt_op_table[i].id == i; a row without a rule function fails to link.
 */
#include "runtime/op.h"

#include <string.h>

#include "runtime/infer.h"

#define OP(name_, rule_, kernel_, dtypes_, api_, schema_, shard_)                                  \
    [DT_OP_##name_] = {.full_name = #name_,                                                        \
                       .rule = dt_infer_##rule_,                                                   \
                       .shard = dt_shard_##shard_,                                                 \
                       .schema = schema_,                                                          \
                       .id = DT_OP_##name_,                                                        \
                       .dtypes = DT_DTYPES_##dtypes_,                                              \
                       .api = api_},
const dt_op dt_op_table[DT_OP_COUNT] = {
#include "runtime/ops.def"
};
#undef OP

const char *dt_op_display_name(const dt_op *op, char *buffer, size_t size) {
    const char *suffix = strstr(op->full_name, "__");
    size_t length = suffix ? (size_t)(suffix - op->full_name) : strlen(op->full_name);
    if (length >= size) length = size - 1;
    memcpy(buffer, op->full_name, length);
    buffer[length] = '\0';
    return buffer;
}

static dt_dtype default_dtype = DT_F32;

dt_dtype dt_default_dtype(void) { return default_dtype; }

dt_status dt_default_dtype_set(dt_dtype dtype) {
    if (!dt_dtype_is_float(dtype))
        return dt_fail(DT_E_TYPE, "only floating-point types are supported as the default type");
    default_dtype = dtype;
    return DT_OK;
}
