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
static inline void operator+=(feat &a, const feat &b) { EACH a.x[i] += b.x[i]; }
static inline void add(float *p, const feat &a) { store(p, load(p) + a); }
static inline float sum(const feat &a) {
    lane s = a.x[0];
    for (int i = 1; i < D / 8; i++) s += a.x[i];
    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

static float *room(size_t floats) { return (float *)aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64); }

#define STEP (P % 4 ? 1 : 4)
static const float TINY = 1e-30f;

/* e[j] = scale * row . keys[:, j], keys (D, K). K is cut so that a piece of e stays in the registers. */
static void products(writes e, reads row, float scale, reads keys, int K) {
    int j = 0;
    for (; j + 32 <= K; j += 32) {
        lane a[4] = {};
        for (int d = 0; d < D; d++)
            for (int r = 0; r < 4; r++) a[r] += scale * row[d] * *(const lane_at *)(keys + (size_t)d * K + j + 8 * r);
        for (int r = 0; r < 4; r++) *(lane_at *)(e + j + 8 * r) = a[r];
    }
    for (; j < K; j++) {
        e[j] = 0;
        for (int d = 0; d < D; d++) e[j] += scale * row[d] * keys[(size_t)d * K + j];
    }
}

static float largest(reads e, int K) {
    float top = e[0];
    for (int j = 1; j < K; j++) top = e[j] > top ? e[j] : top;
    return top;
}

static void exponentials(writes e, reads row, float scale, reads keys, int K) {
    products(e, row, scale, keys, K);
    const float top = largest(e, K);
    for (int j = 0; j < K; j++) e[j] = expf(e[j] - top);
}

static void triple_exponentials(writes e, reads row, reads k1, reads k2t, float scale, int S) {
    for (int j = 0; j < S; j++) {
        float both[D];
        for (int d = 0; d < D; d++) both[d] = row[d] * k1[(size_t)j * D + d];
        products(e + (size_t)j * S, both, scale, k2t, S);
    }
    const float top = largest(e, S * S);
    for (int j = 0; j < S * S; j++) e[j] = expf(e[j] - top);
}

/* Interleaved heads; with P = 1 plain heads. q, k, v (H, S, P, D), kt (H, D, S*P). Kept for the backward pass:
   weights (H, S, P, S*P), exp of the shifted scores, and totals (F, H, P), the sum that a row is divided by. */
extern "C" int pairs_forward(int H, int S, float scale, ints first, ints order, ints begin, ints length, ints state, reads q,
                  reads kt, reads v, writes weights, writes totals, writes out /* (F, H, P, D) */) {
    const int K = S * P;
    float *__restrict__ sums = room((size_t)S * P * D), *__restrict__ ones = room((size_t)S * P);
    int in_range = 1;
    for (int h = 0; h < H; h++)
        for (int s = 0; s < S; s++) {
            if (first[s] == first[s + 1]) continue;
            float *__restrict__ w = weights + ((size_t)h * S + s) * P * K;
            for (int p = 0; p < P; p++)
                exponentials(w + (size_t)p * K, q + (((size_t)h * S + s) * P + p) * D, scale, kt + (size_t)h * D * K, K);
            /* What a key state adds to numerator and denominator: summed over its pseudo-keys once for all tokens. */
            for (int j = 0; j < S; j++) {
                feat values[P];
                for (int r = 0; r < P; r++) values[r] = load(v + (((size_t)h * S + j) * P + r) * D);
                for (int p = 0; p < P; p++) {
                    feat a = zero();
                    float total = 0;
                    reads e = w + (size_t)p * K + j * P;
                    for (int r = 0; r < P; r++) a += e[r] * values[r], total += e[r];
                    store(sums + ((size_t)j * P + p) * D, a);
                    ones[j * P + p] = total;
                }
            }
            for (int n = first[s]; n < first[s + 1]; n++) {
                const int f = order[n], from = begin[f], to = from + length[f];
                writes to_out = out + ((size_t)f * H + h) * P * D, to_totals = totals + ((size_t)f * H + h) * P;
                float total[P] = {0};
                for (int j = from; j < to; j++)
                    for (int p = 0; p < P; p++) total[p] += ones[state[j] * P + p];
                for (int p = 0; p < P; p += STEP) { /* as many sums at a time as there are registers */
                    feat a[STEP];
                    for (int r = 0; r < STEP; r++) a[r] = zero();
                    for (int j = from; j < to; j++) {
                        reads to_add = sums + ((size_t)state[j] * P + p) * D;
                        for (int r = 0; r < STEP; r++) a[r] += load(to_add + r * D);
                    }
                    for (int r = 0; r < STEP; r++) store(to_out + (p + r) * D, (1 / total[p + r]) * a[r]);
                }
                for (int p = 0; p < P; p++) in_range &= total[p] > TINY, to_totals[p] = total[p];
            }
        }
    free(sums), free(ones);
    return in_range;
}

/* Gradients of q, k and v, which must come zeroed; k (H, S, P, D). */
extern "C" void pairs_backward(int H, int S, float scale, ints first, ints order, ints begin, ints length, ints state, reads q,
                    reads k, reads v, reads weights, reads totals, reads out, reads grad, writes dq, writes dk,
                    writes dv) {
    const int K = S * P;
    float *__restrict__ sums = room((size_t)S * P * D), *__restrict__ ones = room((size_t)S * P);
    for (int h = 0; h < H; h++)
        for (int s = 0; s < S; s++) {
            if (first[s] == first[s + 1]) continue;
            memset(sums, 0, (size_t)S * P * D * sizeof(float)), memset(ones, 0, (size_t)S * P * sizeof(float));
            for (int n = first[s]; n < first[s + 1]; n++) {
                const int f = order[n], from = begin[f], to = from + length[f];
                reads g = grad + ((size_t)f * H + h) * P * D, o = out + ((size_t)f * H + h) * P * D;
                float one[P];
                for (int p = 0; p < P; p += STEP) {
                    feat a[STEP];
                    for (int r = 0; r < STEP; r++) {
                        const float inverse = 1 / totals[((size_t)f * H + h) * P + p + r];
                        a[r] = inverse * load(g + (p + r) * D);
                        one[p + r] = -sum(a[r] * load(o + (p + r) * D));
                    }
                    for (int j = from; j < to; j++) {
                        writes to_add = sums + ((size_t)state[j] * P + p) * D;
                        for (int r = 0; r < STEP; r++) add(to_add + r * D, a[r]);
                    }
                }
                for (int j = from; j < to; j++)
                    for (int p = 0; p < P; p++) ones[state[j] * P + p] += one[p];
            }
            reads w = weights + ((size_t)h * S + s) * P * K;
            reads mine = q + ((size_t)h * S + s) * P * D;
            for (int j = 0; j < S; j++) {
                const size_t at = ((size_t)h * S + j) * P * D;
                float scores[P][P];
                feat values[P];
                for (int r = 0; r < P; r++) values[r] = load(v + at + r * D);
                for (int p = 0; p < P; p++) {
                    const feat x = load(sums + ((size_t)j * P + p) * D);
                    reads e = w + (size_t)p * K + j * P;
                    for (int r = 0; r < P; r++) {
                        scores[p][r] = e[r] * scale * (sum(x * values[r]) + ones[j * P + p]);
                        add(dv + at + r * D, e[r] * x);
                    }
                }
                for (int r = 0; r < P; r++) {
                    feat a = zero();
                    for (int p = 0; p < P; p++) a += scores[p][r] * load(mine + p * D);
                    add(dk + at + r * D, a);
                }
                for (int p = 0; p < P; p++) {
                    feat a = zero();
                    for (int r = 0; r < P; r++) a += scores[p][r] * load(k + at + r * D);
                    add(dq + (((size_t)h * S + s) * P + p) * D, a);
                }
            }
        }
    free(sums), free(ones);
}

/* Of one token: W (N x N, weights of pairs of its example's tokens) times `values` (N, D), J rows at a time. */
#define ROWS(J)                                                                                                        \
    feat a[J];                                                                                                         \
    for (int r = 0; r < J; r++) a[r] = zero();                                                                         \
    for (int k = 0; k < N; k++) {                                                                                      \
        const feat x = load(values + (size_t)k * D);                                                                   \
        for (int r = 0; r < J; r++) a[r] += w[(size_t)seen[j + r] * S + seen[k]] * x;                                  \
    }

/* 2-simplicial attention: q, k1, v1, v2 (H, S, D), k2t (H, D, S). Kept: weights (H, S, S, S), totals (F, H). */
extern "C" int triples_forward(int H, int S, int positions, float scale, ints first, ints order, ints begin, ints length,
                    ints state, reads q, reads k1, reads k2t, reads v1, reads v2, writes weights, writes totals,
                    writes out /* (F, H, D) */) {
    int in_range = 1;
    float *__restrict__ values = room((size_t)positions * D), *__restrict__ rows = room(S);
    for (int h = 0; h < H; h++) {
        reads k1h = k1 + (size_t)h * S * D, k2h = k2t + (size_t)h * D * S;
        reads v1h = v1 + (size_t)h * S * D, v2h = v2 + (size_t)h * S * D;
        for (int s = 0; s < S; s++) {
            if (first[s] == first[s + 1]) continue;
            writes w = weights + ((size_t)h * S + s) * S * S;
            triple_exponentials(w, q + ((size_t)h * S + s) * D, k1h, k2h, scale, S);
            for (int n = first[s]; n < first[s + 1]; n++) {
                const int f = order[n], N = length[f];
                ints seen = state + begin[f];
                for (int k = 0; k < N; k++) store(values + (size_t)k * D, load(v2h + (size_t)seen[k] * D));
                feat all = zero();
                for (int k = 0; k < S; k++) rows[k] = 0;
                for (int j = 0; j < N; j++)
                    for (int k = 0; k < S; k++) rows[k] += w[(size_t)seen[j] * S + k];
                float total = 0;
                for (int k = 0; k < N; k++) total += rows[seen[k]];
                int j = 0;
                for (; j + 4 <= N; j += 4) {
                    ROWS(4)
                    for (int r = 0; r < 4; r++) all += a[r] * load(v1h + (size_t)seen[j + r] * D);
                }
                for (; j < N; j++) {
                    ROWS(1)
                    all += a[0] * load(v1h + (size_t)seen[j] * D);
                }
                in_range &= total > TINY;
                totals[(size_t)f * H + h] = total;
                store(out + ((size_t)f * H + h) * D, (1 / total) * all);
            }
        }
    }
    free(values), free(rows);
    return in_range;
}

/* Gradients of q, k1, k2, v1 and v2, which must come zeroed; k2 (H, S, D). */
extern "C" void triples_backward(int H, int S, int positions, float scale, ints first, ints order, ints begin, ints length,
                      ints state, reads q, reads k1, reads k2, reads v1, reads v2, reads weights, reads totals,
                      reads out, reads grad, writes dq, writes dk1, writes dk2, writes dv1, writes dv2) {
    const int ids = S / positions, L = (positions + 7) / 8 * 8;
    float *__restrict__ scores = room((size_t)S * S), *__restrict__ values = room((size_t)L * D);
    float *__restrict__ turned = room((size_t)L * D), *__restrict__ rows = room((size_t)L * D);
    float *__restrict__ line = room(L), *__restrict__ is = room((size_t)L * ids);
    for (int h = 0; h < H; h++) {
        const size_t head = (size_t)h * S * D;
        for (int s = 0; s < S; s++) {
            if (first[s] == first[s + 1]) continue;
            reads w = weights + ((size_t)h * S + s) * S * S;
            memset(scores, 0, (size_t)S * S * sizeof(float));
            for (int n = first[s]; n < first[s + 1]; n++) {
                const int f = order[n], N = length[f];
                ints seen = state + begin[f];
                const feat g = (1 / totals[(size_t)f * H + h]) * load(grad + ((size_t)f * H + h) * D);
                const float one = -sum(g * load(out + ((size_t)f * H + h) * D));
                memset(turned, 0, (size_t)L * D * sizeof(float)), memset(is, 0, (size_t)L * ids * sizeof(float));
                for (int k = 0; k < N; k++) {
                    const feat x = load(v2 + head + (size_t)seen[k] * D);
                    store(values + (size_t)k * D, x);
                    store(rows + (size_t)k * D, g * load(v1 + head + (size_t)seen[k] * D));
                    for (int d = 0; d < D; d++) turned[(size_t)d * L + k] = values[(size_t)k * D + d];
                    is[(size_t)(seen[k] / positions) * L + k] = 1;
                }
                for (int j = 0; j < N; j++) { /* of the weights */
                    reads x = rows + (size_t)j * D;
                    for (int k = 0; k < L; k += 32) {
                                        lane b[4];
                        const int width = L - k < 32 ? (L - k) / 8 : 4;
                        if (width == 4) {
                            for (int r = 0; r < 4; r++) b[r] = one - lane{};
                            for (int d = 0; d < D; d++)
                                for (int r = 0; r < 4; r++)
                                    b[r] += x[d] * *(const lane_at *)(turned + (size_t)d * L + k + 8 * r);
                        } else {
                            for (int r = 0; r < width; r++) b[r] = one - lane{};
                            for (int d = 0; d < D; d++)
                                for (int r = 0; r < width; r++)
                                    b[r] += x[d] * *(const lane_at *)(turned + (size_t)d * L + k + 8 * r);
                        }
                        for (int r = 0; r < width; r++) *(lane_at *)(line + k + 8 * r) = b[r];
                    }
                    for (int id = 0; id < ids; id++) { /* a product with 0 or 1 instead of a scattered addition */
                        writes to = scores + (size_t)seen[j] * S + (size_t)id * positions;
                        for (int k = 0; k < N; k++) to[k] += is[(size_t)id * L + k] * line[k];
                    }
                }
                int j = 0; /* of the values */
                for (; j + 4 <= N; j += 4) {
                    feat r4[4];
                    for (int r = 0; r < 4; r++) r4[r] = load(rows + (size_t)(j + r) * D);
                    ROWS(4)
                    for (int r = 0; r < 4; r++) add(dv1 + head + (size_t)seen[j + r] * D, g * a[r]);
                    for (int k = 0; k < N; k++) {
                        feat b = load(dv2 + head + (size_t)seen[k] * D);
                        for (int r = 0; r < 4; r++) b += w[(size_t)seen[j + r] * S + seen[k]] * r4[r];
                        store(dv2 + head + (size_t)seen[k] * D, b);
                    }
                }
                for (; j < N; j++) {
                    const feat row = load(rows + (size_t)j * D);
                    ROWS(1)
                    add(dv1 + head + (size_t)seen[j] * D, g * a[0]);
                    for (int k = 0; k < N; k++)
                        add(dv2 + head + (size_t)seen[k] * D, w[(size_t)seen[j] * S + seen[k]] * row);
                }
            }
            const feat mine = load(q + head + (size_t)s * D);
            feat mine_grad = zero();
            for (int j = 0; j < S * S; j++) scores[j] *= scale * w[j];
            for (int j = 0; j < S; j += 4) { /* through the scores, which are trilinear in q, k1 and k2 */
                const int J = S - j < 4 ? S - j : 4;
                feat a[4], row[4];
                for (int r = 0; r < 4; r++) a[r] = zero();
                for (int r = 0; r < J; r++) row[r] = mine * load(k1 + head + (size_t)(j + r) * D);
                for (int r = J; r < 4; r++) row[r] = zero();
                for (int k = 0; k < S; k++) {
                    const feat y = load(k2 + head + (size_t)k * D);
                    feat to = load(dk2 + head + (size_t)k * D);
                    for (int r = 0; r < 4; r++) {
                        const float score = r < J ? scores[(size_t)(j + r) * S + k] : 0;
                        a[r] += score * y;
                        to += score * row[r];
                    }
                    store(dk2 + head + (size_t)k * D, to);
                }
                for (int r = 0; r < J; r++) {
                    mine_grad += a[r] * load(k1 + head + (size_t)(j + r) * D);
                    add(dk1 + head + (size_t)(j + r) * D, a[r] * mine);
                }
            }
            add(dq + head + (size_t)s * D, mine_grad);
        }
    }
    free(scores), free(values), free(turned), free(rows), free(line), free(is);
}
