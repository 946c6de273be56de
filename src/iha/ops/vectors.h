/* What the C++ kernels share: vectors of LANES numbers, 2^x, and memory that a thread keeps between calls. */

#include <cmath>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8 /* gcc splits 64-byte vectors into scalars where there is no AVX-512 */
#endif
#define UNROLL _Pragma("GCC unroll 16")

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float vec_at __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));

static inline vec load(const float *p) { return *(const vec_at *)p; }
static inline void store(float *p, vec x) { *(vec_at *)p = x; }
static inline vec all(float x) { return x - vec{}; }
static inline ivec all(int32_t x) { return x - ivec{}; }
static inline vec larger(vec a, vec b) { return a > b ? a : b; }

static const float LOWEST = -1.7e38f; /* of a row that has seen no key: finite, so that differences are no NaN */
static const float LOG2E = 1.44269504088896341f;

/* 2^x to 1e-7 relative for x <= 127, zero below -126; NaN stays NaN. */
static inline vec exp2v(vec x) {
    const float magic = 12582912.0f + 127; /* 1.5 * 2^23 rounds to an integer in the low bits; 127 is the exponent's bias */
    vec t = x + magic, f = x - (t - magic);
    vec p = all(1.534579205326736e-4f);
    p = p * f + 1.3399923918768764e-3f;
    p = p * f + 9.618489071726799e-3f;
    p = p * f + 5.550328642129898e-2f;
    p = p * f + 2.4022646248340607e-1f;
    p = p * f + 6.931471824645996e-1f;
    p = p * f + 1.0f;
    p = p * (vec)((ivec)t << 23);
    return x < -126.0f ? vec{} : p;
}

/* What one thread needs, kept between calls. */
struct Room {
    float *at = nullptr;
    size_t floats = 0;
    ~Room() { free(at); }
    float *get(size_t wanted) {
        if (wanted > floats) {
            free(at);
            at = (float *)aligned_alloc(64, (wanted * 4 + 63) / 64 * 64);
            floats = wanted;
        }
        return at;
    }
};
static thread_local Room room;
