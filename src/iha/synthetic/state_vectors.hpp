/* Vectors of the state kernels: the D features of a head, and blocks of 16 keys.

   The width follows the machine: gcc 12 splits a 64-byte vector into scalars where there is no AVX-512. */

#pragma once

#include <cmath>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>

typedef const int32_t *__restrict__ ints;
typedef const float *__restrict__ reads;
typedef float *__restrict__ writes;

static_assert(D % 8 == 0 && P >= 1, "heads fill whole vector registers");

template <int BYTES> struct vectors {
    typedef float lanes __attribute__((vector_size(BYTES)));
    typedef float at __attribute__((vector_size(BYTES), aligned(4), may_alias)); /* at any address */
    typedef int32_t whole __attribute__((vector_size(BYTES)));
};

/* N numbers in registers of W. */
template <int N, int W> struct numbers {
    static const int COUNT = N / W;
    typedef typename vectors<4 * W>::lanes lanes;
    typedef typename vectors<4 * W>::at at;
    lanes x[COUNT];
};

#ifdef __AVX512F__
#define WIDEST 16
#else
#define WIDEST 8
#endif

typedef numbers<D, D % 16 ? 8 : WIDEST> feat; /* features of a head */
typedef numbers<16, WIDEST> block;            /* 16 keys */
typedef numbers<8, 8> eight;                  /* 8 pseudo-heads */

#define EACH for (int i = 0; i < T::COUNT; i++)
template <class T> static inline T zero() { T c; EACH c.x[i] = typename T::lanes{}; return c; }
template <class T> static inline T load(const float *p) {
    T c;
    EACH c.x[i] = *(const typename T::at *)(p + sizeof c.x[0] / 4 * i);
    return c;
}
template <class T> static inline T all(float a) { T c; EACH c.x[i] = a - typename T::lanes{}; return c; }
template <class T> static inline void store(float *p, const T &a) {
    EACH *(typename T::at *)(p + sizeof a.x[0] / 4 * i) = a.x[i];
}
template <class T> static inline T operator+(const T &a, const T &b) { T c; EACH c.x[i] = a.x[i] + b.x[i]; return c; }
template <class T> static inline T operator*(const T &a, const T &b) { T c; EACH c.x[i] = a.x[i] * b.x[i]; return c; }
template <class T> static inline T operator*(float a, const T &b) { T c; EACH c.x[i] = a * b.x[i]; return c; }
template <class T> static inline T &operator+=(T &a, const T &b) { EACH a.x[i] += b.x[i]; return a; }
template <class T> static inline T larger(const T &a, const T &b) {
    T c;
    EACH c.x[i] = a.x[i] > b.x[i] ? a.x[i] : b.x[i];
    return c;
}
template <class T> static inline void add(float *p, const T &a) { store(p, load<T>(p) + a); }

#define HALVES(v, n) \
    (__builtin_shufflevector(v, v, LOW_##n) + __builtin_shufflevector(v, v, HIGH_##n))
#define LOW_16 0, 1, 2, 3, 4, 5, 6, 7
#define HIGH_16 8, 9, 10, 11, 12, 13, 14, 15
#define LOW_8 0, 1, 2, 3
#define HIGH_8 4, 5, 6, 7
static inline float total(const vectors<32>::lanes &a) {
    const vectors<16>::lanes s = HALVES(a, 8);
    return (s[0] + s[1]) + (s[2] + s[3]);
}
static inline float total(const vectors<64>::lanes &a) { return total(HALVES(a, 16)); }
template <class T> static inline float sum(const T &a) {
    typename T::lanes s = a.x[0];
    for (int i = 1; i < T::COUNT; i++) s += a.x[i];
    return total(s);
}
/* Eight numbers with the same sum. */
static inline vectors<32>::lanes folded(const vectors<32>::lanes &a) { return a; }
static inline vectors<32>::lanes folded(const vectors<64>::lanes &a) { return HALVES(a, 16); }
template <class T> static inline eight fold(const T &a) {
    eight s;
    s.x[0] = folded(a.x[0]);
    for (int i = 1; i < T::COUNT; i++) s.x[0] += folded(a.x[i]);
    return s;
}
/* The sums of eight vectors, as one. */
static inline eight sums(const eight *a) {
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
    vectors<32>::lanes x[8];
    for (int i = 0; i < 8; i++) x[i] = a[i].x[0];
    for (int n = 4; n; n /= 2) /* pairs of neighbours, three times */
        for (int i = 0; i < n; i++)
            x[i] = __builtin_shufflevector(x[2 * i], x[2 * i + 1], EVEN) + __builtin_shufflevector(x[2 * i], x[2 * i + 1], ODD);
    eight s;
    s.x[0] = x[0];
    return s;
}

/* exp(x) for x <= 0, to float32 rounding (tested); 1 above 0; below exp(-87) it stays there, which no total notices. */
template <class T> static inline T exponential(T a) {
    typedef typename vectors<sizeof a.x[0]>::whole whole;
    typedef typename T::lanes lanes;
    EACH {
        lanes x = a.x[i] > -87.f ? a.x[i] : -87.f - lanes{};
        x = x < 0.f ? x : lanes{};
        const whole n = __builtin_convertvector(x * 1.44269504f - 0.5f, whole); /* towards zero: to the nearest */
        const lanes r = x - __builtin_convertvector(n, lanes) * 0.693147181f;
        lanes p = r * 1.9875691500e-4f + 1.3981999507e-3f;
        p = p * r + 8.3334519073e-3f;
        p = p * r + 4.1665795894e-2f;
        p = p * r + 1.6666665459e-1f;
        p = p * r + 5.0000001201e-1f;
        p = p * (r * r) + (r + 1);
        a.x[i] = (lanes)((whole)p + (n << 23));
    }
    return a;
}

static float *room(size_t floats) { return (float *)aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64); }

static const int BLOCK = 16;      /* keys that lie together */
static const float TINY = 1e-24f; /* a smaller total has lost digits: 4096 weights of exp(-87) are 6e-35 */
static const int SLOTS = 8;       /* positions at a time: what belongs to them stays in the nearest cache */
static inline int up(int K) { return (K + BLOCK - 1) / BLOCK * BLOCK; }

/* Where a state lies among those of SLOTS positions: local[S], id * SLOTS + position % SLOTS. */
static int *locals(int S, int positions) {
    int *local = (int *)malloc(S * sizeof(int));
    for (int s = 0; s < S; s++) local[s] = s / positions * SLOTS + s % positions % SLOTS;
    return local;
}

/* keys (K, D) as blocks (up(K) / BLOCK, D, BLOCK). */
static void pack(writes to, reads keys, int K) {
    memset(to, 0, (size_t)up(K) * D * sizeof(float));
    for (int j = 0; j < K; j++)
        for (int d = 0; d < D; d++) to[(size_t)(j / BLOCK * D + d) * BLOCK + j % BLOCK] = keys[(size_t)j * D + d];
}

/* e[b * apart + r * stride] = rows[r] . (the keys of block b), for R rows and B blocks at a time. */
template <int R, int B>
static inline void tile(writes e, size_t apart, size_t stride, const float (*rows)[D], reads packed) {
    block a[B][R];
    for (int b = 0; b < B; b++)
        for (int r = 0; r < R; r++) a[b][r] = zero<block>();
    for (int d = 0; d < D; d++)
        for (int b = 0; b < B; b++) {
            const block x = load<block>(packed + (b * D + d) * BLOCK);
            for (int r = 0; r < R; r++) a[b][r] += rows[r][d] * x;
        }
    for (int b = 0; b < B; b++)
        for (int r = 0; r < R; r++) store(e + b * apart + r * stride, a[b][r]);
}

/* f(R, r) for n rows from r = 0 on, R of them at a time: as many as the registers hold. */
template <class Function> static inline void by_rows(int n, Function f) {
    const int MOST = WIDEST / 2;
    int r = 0;
    for (; r + MOST <= n; r += MOST) f(std::integral_constant<int, MOST>(), r);
    switch (n - r) {
#define LEFT(i) case i: f(std::integral_constant<int, i>(), r); break
        LEFT(1); LEFT(2); LEFT(3);
#if WIDEST == 16
        LEFT(4); LEFT(5); LEFT(6); LEFT(7);
#endif
    }
}

/* Tiles for n rows and all blocks. */
static void products(writes e, size_t apart, size_t stride, const float (*rows)[D], int n, reads packed, int blocks) {
    const int B = WIDEST / 8;
    for (int b = 0; b < blocks; b += B)
        by_rows(n, [=](auto R, int r) {
            writes to = e + b * apart + r * stride;
            reads from = packed + (size_t)b * D * BLOCK;
            if (b + B > blocks) tile<decltype(R)::value, 1>(to, apart, stride, rows + r, from);
            else tile<decltype(R)::value, B>(to, apart, stride, rows + r, from);
        });
}

static inline float largest(const block &a) {
    float x[BLOCK], top;
    store(x, a);
    top = x[0];
    for (int i = 1; i < BLOCK; i++) top = x[i] > top ? x[i] : top;
    return top;
}
