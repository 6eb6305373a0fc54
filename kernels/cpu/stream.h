/* stream.h: copies to memory that nobody reads soon: past the caches, where the CPU can.
 *
 * A plain store reads the line that it is going to write; for results larger than the caches that
 * is a third of all traffic.
 */
#ifndef DT_KERNELS_CPU_STREAM_H
#define DT_KERNELS_CPU_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>

#define DT__STREAM_BYTES (8 << 20) /* results at least this large are streamed */

static inline void dt__stream(void *to, const void *from, size_t bytes) {
    char *dst = to;
    const char *src = from;
    size_t head = (size_t)(-(uintptr_t)dst & 63);
    if (bytes < 256) head = bytes;
    memcpy(dst, src, head);
    for (dst += head, src += head, bytes -= head; bytes >= 64; bytes -= 64, dst += 64, src += 64) {
        for (int k = 0; k < 64; k += 16)
            _mm_stream_si128((__m128i *)(void *)(dst + k),
                             _mm_loadu_si128((const __m128i *)(const void *)(src + k)));
    }
    memcpy(dst, src, bytes);
}
/* Before others may be told of what was streamed. */
static inline void dt__stream_end(void) { _mm_sfence(); }
#else
#define DT__STREAM_BYTES SIZE_MAX
static inline void dt__stream(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static inline void dt__stream_end(void) {}
#endif

#endif
