/* assert.c: the end of a process whose state is corrupt.
 *
 * The message goes out in one write, from a buffer on the stack: no lock, no allocation, so that it
 * is seen even when the heap is what broke.
 */
#include "runtime/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Noreturn void dt_assert_failed(const char *expr, const char *file, int line) {
    char text[512];
    snprintf(text, sizeof text, "dtorch: internal error: %s:%d: assertion failed: %s\n", file, line,
             expr);
    /* Nothing can be done when stderr is closed; abort tells as much. */
    if (write(STDERR_FILENO, text, strlen(text)) < 0) abort();
    abort();
}
