/* Attention over tokens of few different states (state_attention.py says what and why), forward and backward.

   D, features of a head, and P, pseudo-heads, are given when compiling (-DD=16 -DP=8), so that the inner loops have
   constant lengths and become vector instructions. One thread. All arrays are float32 and C-contiguous.

   Tokens are sorted by state: those of state s are order[first[s]] ... order[first[s+1] - 1]. The keys of token f are
   the tokens begin[f] ... begin[f] + length[f] - 1 of its own example, in order of position; state[f] is a token's
   state, which is id * (positions) + position. */

#include <cmath>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef const int32_t *__restrict__ ints;
typedef const float *__restrict__ reads;
typedef float *__restrict__ writes;

static_assert(D % 8 == 0 && P >= 1, "heads fill whole vector registers");

/* Eight numbers of a vector register, and the D features of a head in D / 8 of them. */
typedef float lane __attribute__((vector_size(32)));
typedef float lane_at __attribute__((vector_size(32), aligned(4))); /* at any address */

struct feat {
    lane x[D / 8];
};

#define EACH for (int i = 0; i < D / 8; i++)
static inline feat zero() { feat c; EACH c.x[i] = lane{}; return c; }
static inline feat load(const float *p) { feat c; EACH c.x[i] = *(const lane_at *)(p + 8 * i); return c; }
static inline void store(float *p, const feat &a) { EACH *(lane_at *)(p + 8 * i) = a.x[i]; }
static inline feat operator+(const feat &a, const feat &b) { feat c; EACH c.x[i] = a.x[i] + b.x[i]; return c; }
static inline feat operator*(const feat &a, const feat &b) { feat c; EACH c.x[i] = a.x[i] * b.x[i]; return c; }
static inline feat operator*(float a, const feat &b) { feat c; EACH c.x[i] = a * b.x[i]; return c; }
static inline feat &operator+=(feat &a, const feat &b) { EACH a.x[i] += b.x[i]; return a; }
static inline void add(float *p, const feat &a) { store(p, load(p) + a); }
static inline float sum(const feat &a) {
    lane s = a.x[0];
    for (int i = 1; i < D / 8; i++) s += a.x[i];
    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

static float *room(size_t floats) { return (float *)aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64); }

static const int BLOCK = 16;                /* keys that lie together */
static const int STEP = P % 4 ? 1 : 4;      /* pseudo-heads at a time: their sums stay in registers */
static const float TINY = 1e-30f;           /* a smaller total has lost digits */
static int up(int K) { return (K + BLOCK - 1) / BLOCK * BLOCK; }

/* a[r] = sum over i of c(i, r) x(i), for n vectors x. */
template <int R, class Coefficient, class Vector>
static inline void combine(feat (&a)[R], int n, Coefficient c, Vector x) {
    for (int r = 0; r < R; r++) a[r] = zero();
    for (int i = 0; i < n; i++) {
        const feat v = x(i);
        for (int r = 0; r < R; r++) a[r] += c(i, r) * v;
    }
}

/* keys (K, D) as blocks (up(K) / BLOCK, D, BLOCK): whole rows of a transpose would lie a multiple of 4 KiB apart and
   evict each other from the cache. */
static void pack(writes to, reads keys, int K) {
    memset(to, 0, (size_t)up(K) * D * sizeof(float));
    for (int j = 0; j < K; j++)
        for (int d = 0; d < D; d++) to[(size_t)(j / BLOCK * D + d) * BLOCK + j % BLOCK] = keys[(size_t)j * D + d];
}

/* e[r][j] = rows[r] . keys[j] for R rows, e (R, up(K)). */
template <int R> static void products(writes e, const float (*rows)[D], reads packed, int K) {
    for (int j = 0; j < up(K); j += BLOCK, packed += D * BLOCK) {
        lane a[R][2] = {};
        for (int d = 0; d < D; d++) {
            const lane x = *(const lane_at *)(packed + d * BLOCK), y = *(const lane_at *)(packed + d * BLOCK + 8);
            for (int r = 0; r < R; r++) a[r][0] += rows[r][d] * x, a[r][1] += rows[r][d] * y;
        }
        for (int r = 0; r < R; r++)
            for (int i = 0; i < 2; i++) *(lane_at *)(e + (size_t)r * up(K) + j + 8 * i) = a[r][i];
    }
}

static float largest(reads e, int K) {
    float top = e[0];
    for (int j = 1; j < K; j++) top = e[j] > top ? e[j] : top;
    return top;
}

static void exponentials(writes e, int K, float top) {
    for (int j = 0; j < K; j++) e[j] = expf(e[j] - top);
}

/* Interleaved heads; with P = 1 plain heads. q, k, v (H, S, P, D). Kept for the backward pass: weights (H, S, P,
   up(S*P)), exp of the shifted scores, and totals (F, H, P), the sum that a row is divided by. Returns whether all
   totals are safely above zero. */
extern "C" int pairs_forward(int H, int S, float scale, ints first, ints order, ints begin, ints length, ints state,
                             reads q, reads k, reads v, writes weights, writes totals, writes out /* (F, H, P, D) */) {
    const int K = S * P, W = up(K);
    float *__restrict__ sums = room((size_t)K * D), *__restrict__ ones = room(K), *__restrict__ keys = room((size_t)W * D);
    int in_range = 1;
    for (int h = 0; h < H; h++) {
        pack(keys, k + (size_t)h * K * D, K);
        for (int s = 0; s < S; s++) {
            if (first[s] == first[s + 1]) continue;
            writes w = weights + ((size_t)h * S + s) * P * W;
            for (int p = 0; p < P; p += STEP) {
                float rows[STEP][D];
                for (int r = 0; r < STEP; r++)
                    store(rows[r], scale * load(q + (((size_t)h * S + s) * P + p + r) * D));
                products<STEP>(w + (size_t)p * W, rows, keys, K);
            }
            for (int p = 0; p < P; p++) exponentials(w + (size_t)p * W, K, largest(w + (size_t)p * W, K));
            /* What a key state adds to numerator and denominator: summed over its pseudo-keys once for all tokens. */
            for (int j = 0; j < S; j++)
                for (int p = 0; p < P; p += STEP) {
                    reads e = w + (size_t)p * W + j * P, x = v + ((size_t)h * S + j) * P * D;
                    feat a[STEP];
                    combine(a, P, [=](int i, int r) { return e[(size_t)r * W + i]; }, [=](int i) { return load(x + i * D); });
                    for (int r = 0; r < STEP; r++) {
                        store(sums + ((size_t)j * P + p + r) * D, a[r]);
                        float total = 0;
                        for (int i = 0; i < P; i++) total += e[(size_t)r * W + i];
                        ones[j * P + p + r] = total;
                    }
                }
            for (int n = first[s]; n < first[s + 1]; n++) {
                const int f = order[n], N = length[f];
                ints seen = state + begin[f];
                writes to_out = out + ((size_t)f * H + h) * P * D, to_totals = totals + ((size_t)f * H + h) * P;
                float total[P] = {0};
                for (int j = 0; j < N; j++)
                    for (int p = 0; p < P; p++) total[p] += ones[seen[j] * P + p];
                for (int p = 0; p < P; p += STEP) {
                    feat a[STEP];
                    for (int r = 0; r < STEP; r++) a[r] = zero();
                    for (int j = 0; j < N; j++)
                        for (int r = 0; r < STEP; r++) a[r] += load(sums + ((size_t)seen[j] * P + p + r) * D);
                    for (int r = 0; r < STEP; r++) store(to_out + (p + r) * D, (1 / total[p + r]) * a[r]);
                }
                for (int p = 0; p < P; p++) in_range &= total[p] > TINY, to_totals[p] = total[p];
            }
        }
    }
    free(sums), free(ones), free(keys);
    return in_range;
}

/* Gradients of q, k and v, which must come zeroed. */
extern "C" void pairs_backward(int H, int S, float scale, ints first, ints order, ints begin, ints length, ints state,
                               reads q, reads k, reads v, reads weights, reads totals, reads out, reads grad,
                               writes dq, writes dk, writes dv) {
    const int K = S * P, W = up(K);
    float *__restrict__ sums = room((size_t)K * D), *__restrict__ ones = room(K), *__restrict__ values = room((size_t)W * D);
    for (int h = 0; h < H; h++) {
        pack(values, v + (size_t)h * K * D, K);
        for (int s = 0; s < S; s++) {
            if (first[s] == first[s + 1]) continue;
            memset(sums, 0, (size_t)K * D * sizeof(float)), memset(ones, 0, (size_t)K * sizeof(float));
            for (int n = first[s]; n < first[s + 1]; n++) {
                const int f = order[n], N = length[f];
                ints seen = state + begin[f];
                reads g = grad + ((size_t)f * H + h) * P * D, o = out + ((size_t)f * H + h) * P * D;
                float one[P];
                for (int p = 0; p < P; p += STEP) {
                    feat a[STEP];
                    for (int r = 0; r < STEP; r++) {
                        a[r] = (1 / totals[((size_t)f * H + h) * P + p + r]) * load(g + (p + r) * D);
                        one[p + r] = -sum(a[r] * load(o + (p + r) * D));
                    }
                    for (int j = 0; j < N; j++)
                        for (int r = 0; r < STEP; r++) add(sums + ((size_t)seen[j] * P + p + r) * D, a[r]);
                }
                for (int j = 0; j < N; j++)
                    for (int p = 0; p < P; p++) ones[seen[j] * P + p] += one[p];
            }
            reads w = weights + ((size_t)h * S + s) * P * W, mine = q + ((size_t)h * S + s) * P * D;
            writes mine_grad = dq + ((size_t)h * S + s) * P * D;
            for (int j = 0; j < S; j++) {
                const size_t at = ((size_t)h * S + j) * P * D;
                reads x = sums + (size_t)j * P * D, e = w + j * P;
                float scores[P][P]; /* their gradients, [p][r] of pseudo-query p and pseudo-key r */
#if P % 8 == 0
                for (int i = 0; i < P; i += 8) {
                    reads packed = values + (size_t)((j * P + i) / BLOCK * D) * BLOCK + (j * P + i) % BLOCK;
                    for (int p = 0; p < P; p += 4) {
                        lane a[4] = {};
                        for (int d = 0; d < D; d++) {
                            const lane y = *(const lane_at *)(packed + d * BLOCK);
                            for (int r = 0; r < 4; r++) a[r] += x[(p + r) * D + d] * y;
                        }
                        for (int r = 0; r < 4; r++) *(lane_at *)(scores[p + r] + i) = a[r];
                    }
                }
#else
                for (int p = 0; p < P; p++)
                    for (int r = 0; r < P; r++) scores[p][r] = sum(load(x + p * D) * load(v + at + r * D));
#endif
                for (int p = 0; p < P; p++)
                    for (int r = 0; r < P; r++) scores[p][r] = (scores[p][r] + ones[j * P + p]) * scale * e[(size_t)p * W + r];
                feat a[STEP];
                for (int p = 0; p < P; p += STEP) {
                    combine(a, P, [=](int i, int r) { return e[(size_t)i * W + p + r]; }, [=](int i) { return load(x + i * D); });
                    for (int r = 0; r < STEP; r++) add(dv + at + (p + r) * D, a[r]);
                    combine(a, P, [&](int i, int r) { return scores[i][p + r]; }, [=](int i) { return load(mine + i * D); });
                    for (int r = 0; r < STEP; r++) add(dk + at + (p + r) * D, a[r]);
                    combine(a, P, [&](int i, int r) { return scores[p + r][i]; }, [=](int i) { return load(k + at + i * D); });
                    for (int r = 0; r < STEP; r++) add(mine_grad + (p + r) * D, a[r]);
                }
            }
        }
    }
    free(sums), free(ones), free(values);
}

/* 2-simplicial attention: q, k1, k2, v1, v2 (H, S, D). Kept: weights (H, S, S, up(S)), totals (F, H), and, unless it
   is null, inner: for token f from place[f] * H * D on, (H, N, D), what each first token j gathers from the second. */
extern "C" int triples_forward(int H, int S, int positions, float scale, ints first, ints order, ints begin, ints length,
                               ints state, const int64_t *place, reads q, reads k1, reads k2, reads v1, reads v2,
                               writes weights, writes totals, writes inner, writes out /* (F, H, D) */) {
    const int W = up(S), ids = S / positions;
    int in_range = 1;
    float *__restrict__ keys = room((size_t)W * D), *__restrict__ column = room(W);
    for (int h = 0; h < H; h++) {
        const size_t head = (size_t)h * S * D;
        pack(keys, k2 + head, S);
        for (int s = 0; s < S; s++) {
            if (first[s] == first[s + 1]) continue;
            writes w = weights + ((size_t)h * S + s) * S * W;
            const feat mine = scale * load(q + head + (size_t)s * D);
            float top = -INFINITY;
            for (int j = 0; j < S; j += 4) {
                const int J = S - j < 4 ? S - j : 4;
                float rows[4][D];
                for (int r = 0; r < J; r++) store(rows[r], mine * load(k1 + head + (size_t)(j + r) * D));
                if (J == 4) products<4>(w + (size_t)j * W, rows, keys, S);
                else for (int r = 0; r < J; r++) products<1>(w + (size_t)(j + r) * W, rows + r, keys, S);
                for (int r = 0; r < J; r++) top = fmaxf(top, largest(w + (size_t)(j + r) * W, S));
            }
            for (int j = 0; j < S; j++) exponentials(w + (size_t)j * W, S, top);
            for (int n = first[s]; n < first[s + 1]; n++) {
                const int f = order[n], N = length[f];
                ints seen = state + begin[f];
                writes kept = inner ? inner + ((size_t)place[f] * H + (size_t)h * N) * D : nullptr;
                for (int id = 0; id < ids; id++) memset(column + (size_t)id * positions, 0, N * sizeof(float));
                for (int j = 0; j < N; j++)
                    for (int id = 0; id < ids; id++) {
                        reads row = w + (size_t)seen[j] * W + (size_t)id * positions;
                        for (int k = 0; k < N; k++) column[(size_t)id * positions + k] += row[k];
                    }
                float total = 0;
                for (int k = 0; k < N; k++) total += column[seen[k]];
                feat all = zero();
                auto gather = [&](auto &a, int j) {
                    combine(a, N, [=](int k, int r) { return w[(size_t)seen[j + r] * W + seen[k]]; },
                            [=](int k) { return load(v2 + head + (size_t)seen[k] * D); });
                    for (int r = 0; r < (int)(sizeof a / sizeof a[0]); r++) {
                        all += a[r] * load(v1 + head + (size_t)seen[j + r] * D);
                        if (kept) store(kept + (size_t)(j + r) * D, a[r]);
                    }
                };
                int j = 0;
                for (feat a[6]; j + 6 <= N; j += 6) gather(a, j);
                for (feat a[1]; j < N; j++) gather(a, j);
                in_range &= total > TINY;
                totals[(size_t)f * H + h] = total;
                store(out + ((size_t)f * H + h) * D, (1 / total) * all);
            }
        }
    }
    free(keys), free(column);
    return in_range;
}

/* Gradients of q, k1, k2, v1 and v2, which must come zeroed. */
extern "C" void triples_backward(int H, int S, int positions, float scale, ints first, ints order, ints begin,
                                 ints length, ints state, const int64_t *place, reads q, reads k1, reads k2, reads v1,
                                 reads v2, reads weights, reads totals, reads inner, reads out, reads grad, writes dq,
                                 writes dk1, writes dk2, writes dv1, writes dv2) {
    const int W = up(S), ids = S / positions, L = up(positions);
    float *__restrict__ scores = room((size_t)S * W), *__restrict__ is = room((size_t)L * ids);
    float *__restrict__ values = room((size_t)L * D), *__restrict__ packed = room((size_t)L * D);
    float(*__restrict__ rows)[D] = (float(*)[D])room((size_t)(L + 4) * D);
    float *__restrict__ lines = room((size_t)4 * L);
    for (int h = 0; h < H; h++) {
        const size_t head = (size_t)h * S * D;
        for (int s = 0; s < S; s++) {
            if (first[s] == first[s + 1]) continue;
            reads w = weights + ((size_t)h * S + s) * S * W;
            memset(scores, 0, (size_t)S * W * sizeof(float));
            for (int n = first[s]; n < first[s + 1]; n++) {
                const int f = order[n], N = length[f];
                ints seen = state + begin[f];
                reads kept = inner + ((size_t)place[f] * H + (size_t)h * N) * D;
                const feat g = (1 / totals[(size_t)f * H + h]) * load(grad + ((size_t)f * H + h) * D);
                const float one = -sum(g * load(out + ((size_t)f * H + h) * D));
                memset(is, 0, (size_t)L * ids * sizeof(float));
                for (int k = 0; k < N; k++) {
                    store(values + (size_t)k * D, load(v2 + head + (size_t)seen[k] * D));
                    store(rows[k], g * load(v1 + head + (size_t)seen[k] * D));
                    add(dv1 + head + (size_t)seen[k] * D, g * load(kept + (size_t)k * D));
                    is[(size_t)(seen[k] / positions) * L + k] = 1;
                }
                memset(rows[N], 0, 4 * sizeof rows[0]);
                pack(packed, values, N);
                for (int j = 0; j < N; j += 4) { /* of the weights */
                    products<4>(lines, rows + j, packed, N);
                    for (int r = 0; r < 4 && j + r < N; r++)
                        for (int id = 0; id < ids; id++) { /* times 0 or 1 instead of a scattered addition */
                            writes to = scores + (size_t)seen[j + r] * W + (size_t)id * positions;
                            reads line = lines + (size_t)r * up(N), mask = is + (size_t)id * L;
                            for (int k = 0; k < N; k++) to[k] += mask[k] * (line[k] + one);
                        }
                }
                auto spread = [&](auto &a, int k) { /* of the second values */
                    combine(a, N, [=](int j, int r) { return w[(size_t)seen[j] * W + seen[k + r]]; },
                            [=](int j) { return load(rows[j]); });
                    for (int r = 0; r < (int)(sizeof a / sizeof a[0]); r++) add(dv2 + head + (size_t)seen[k + r] * D, a[r]);
                };
                int k = 0;
                for (feat a[6]; k + 6 <= N; k += 6) spread(a, k);
                for (feat a[1]; k < N; k++) spread(a, k);
            }
            const feat mine = load(q + head + (size_t)s * D);
            feat mine_grad = zero();
            for (int j = 0; j < S; j++) /* through the scores, which are trilinear in q, k1 and k2 */
                for (int k = 0; k < S; k++) scores[(size_t)j * W + k] *= scale * w[(size_t)j * W + k];
            auto through = [&](auto &a, int j) {
                combine(a, S, [=](int k, int r) { return scores[(size_t)(j + r) * W + k]; },
                        [=](int k) { return load(k2 + head + (size_t)k * D); });
                for (int r = 0; r < (int)(sizeof a / sizeof a[0]); r++) {
                    mine_grad += a[r] * load(k1 + head + (size_t)(j + r) * D);
                    add(dk1 + head + (size_t)(j + r) * D, a[r] * mine);
                }
            };
            auto second = [&](auto &a, int k) {
                combine(a, S, [=](int j, int r) { return scores[(size_t)j * W + k + r]; },
                        [=](int j) { return mine * load(k1 + head + (size_t)j * D); });
                for (int r = 0; r < (int)(sizeof a / sizeof a[0]); r++) add(dk2 + head + (size_t)(k + r) * D, a[r]);
            };
            int j = 0;
            for (feat a[4]; j + 4 <= S; j += 4) through(a, j), second(a, j);
            for (feat a[1]; j < S; j++) through(a, j), second(a, j);
            add(dq + head + (size_t)s * D, mine_grad);
        }
    }
    free(scores), free(is), free(values), free(packed), free(rows), free(lines);
}
