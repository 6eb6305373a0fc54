/* assert.h: the two kinds of assertion.
 *
 * DT_ASSERT is cheap and stays in release builds: it states what must hold or the process state is
 * already corrupt.  DT_DEBUG_ASSERT is for checks too dear for that (whole-structure validity) and
 * is compiled only under DT_DEBUG.
 */
#ifndef DT_RUNTIME_ASSERT_H
#define DT_RUNTIME_ASSERT_H

_Noreturn void dt_assert_failed(const char *expr, const char *file, int line);

#define DT_LIKELY(x) __builtin_expect(!!(x), 1)
#define DT_UNLIKELY(x) __builtin_expect(!!(x), 0)

#define DT_ASSERT(expr)                                                                            \
    do {                                                                                           \
        if (DT_UNLIKELY(!(expr))) dt_assert_failed(#expr, __FILE__, __LINE__);                     \
    } while (0)

#ifdef DT_DEBUG
#define DT_DEBUG_ASSERT(expr) DT_ASSERT(expr)
#else
#define DT_DEBUG_ASSERT(expr) ((void)sizeof(!(expr)))
#endif

#endif
