/* One new token on CPU, where reading memory is all that counts: a row times a matrix, and decode_interleaved
   of decoding.py. All numbers are float32. D, the features of a head, is given when compiling (-DD=64). */

#include "vectors.h"

static_assert(D % LANES == 0, "whole vectors");
static const int64_t WORTH_THREADS = 1 << 16; /* numbers to read: below, waking the others costs more */
static const int64_t AHEAD = 1024;            /* numbers, one page: the processor's own prefetcher stops at its end */

static inline float total(vec a) {
    for (int n = LANES / 2; n; n /= 2)
        UNROLL for (int i = 0; i < n; i++) a[i] += a[i + n];
    return a[0];
}

/* out = w x + bias (which may be null), w (rows, columns) contiguous. Row after row: one stream of memory is read at
   twice the speed of four. */
extern "C" void matrix_vector(int64_t threads, int64_t rows, int64_t columns, const float *w, const float *x, const float *bias,
                              float *out) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && rows * columns > WORTH_THREADS)
    for (int64_t r = 0; r < rows; r++) {
        const float *row = w + r * columns;
        vec a[4] = {};
        int64_t i = 0;
        for (; i + 4 * LANES <= columns; i += 4 * LANES)
            UNROLL for (int e = 0; e < 4; e++) {
                __builtin_prefetch(row + i + e * LANES + AHEAD, 0, 0);
                a[e] += load(x + i + e * LANES) * load(row + i + e * LANES);
            }
        float sum = total((a[0] + a[1]) + (a[2] + a[3]));
        for (; i < columns; i++) sum += x[i] * row[i];
        out[r] = sum + (bias ? bias[r] : 0);
    }
}

/* out = weight * x / sqrt(mean of x^2 + eps), one row of n numbers. */
extern "C" void rms_norm(int64_t n, float eps, const float *x, const float *weight, float *out) {
    vec squares = {};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) squares += load(x + i) * load(x + i);
    float sum = total(squares);
    for (; i < n; i++) sum += x[i] * x[i];
    const float factor = 1 / std::sqrt(sum / n + eps);
    for (i = 0; i < n; i++) out[i] = factor * x[i] * weight[i];
}

struct Cache { /* keys or values (B, G, T, D), strides in numbers; features are adjacent */
    const float *at;
    int64_t b, g, t;
};

struct Mixing { /* sizes and weights of interleaved head attention: H projected and M mixed heads, G and L of keys */
    int64_t H, M, G, L, P, K; /* P pseudo-queries, K pseudo-keys */
    const float *q, *k, *v, *collapse; /* (H, M, P), (G, L, K), (G, L, K), (M, P), contiguous */
    const float *cos, *sin;            /* (P, K, D) full tables, or null */
};

static const int TOKENS = 8;                    /* at a time in the products below */
static const int64_t PART = 64;                 /* tokens of which one thread computes the scores */
static const int64_t WORTH_PRODUCTS = 1 << 22;  /* as WORTH_THREADS, in multiplications */

/* out[t] (+)= sum over f of c(t, f) * w[f], for rows w[f] and out[t] of X numbers, V vectors at a time. */
template <int V, class Number>
static inline void products(int64_t X, int64_t count, int64_t features, Number c, const float *w, float *out, bool add) {
    for (int64_t t = 0; t < count; t += TOKENS)
        for (int64_t lane = 0; lane < X; lane += V * LANES) {
            vec sums[TOKENS][V];
            UNROLL for (int i = 0; i < TOKENS; i++) UNROLL for (int v = 0; v < V; v++) sums[i][v] = vec{};
            for (int64_t f = 0; f < features; f++) {
                vec y[V];
                UNROLL for (int v = 0; v < V; v++) y[v] = load(w + f * X + lane + v * LANES);
                UNROLL for (int i = 0; i < TOKENS; i++) {
                    const vec z = all(c(t + i < count ? t + i : count - 1, f));
                    UNROLL for (int v = 0; v < V; v++) sums[i][v] += z * y[v];
                }
            }
            for (int i = 0; i < TOKENS && t + i < count; i++) UNROLL for (int v = 0; v < V; v++) {
                float *p = out + (t + i) * X + lane + v * LANES;
                store(p, add ? load(p) + sums[i][v] : sums[i][v]);
            }
        }
}

static int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* q (B, H, D), rotated to its token; out (B, M, D), collapsed; bias (1 or B, M * P * K, T) or null.
   Lanes are the rows (m, p, p') of scores, so that softmax needs no sums across lanes but those of p'. */
extern "C" void decode_interleaved(int64_t threads, int64_t B, int64_t T, float scale, const Mixing *mixing, const float *q, const Cache *k,
                                   const Cache *v, const float *bias, int64_t bias_b, float *out) {
    const Mixing &m = *mixing;
    const int64_t rows = m.M * m.P * m.K, X = up(rows, 2 * LANES), pairs = m.M * m.K, Y = up(pairs, LANES), R = m.M / m.L;
    float *of_query = room.get(m.G * D * X + T * X + T * Y + m.G * D * Y + 2 * X + 2 * D);
    float *scores = of_query + m.G * D * X, *weights = scores + T * X, *sums = weights + T * Y, *top = sums + m.G * D * Y;
    const bool parallel = threads > 1 && T * m.G * D * X > WORTH_PRODUCTS;
    float *sum = top + X, *pseudo = sum + X, *turned = pseudo + D;
    for (int64_t b = 0; b < B; b++) {
        memset(of_query, 0, sizeof(float) * m.G * D * X);
        for (int64_t h = 0; h < m.M; h++)
            for (int64_t p = 0; p < m.P; p++) {
                for (int d = 0; d < D; d++) pseudo[d] = 0;
                for (int64_t n = 0; n < m.H; n++) {
                    const float a = scale * LOG2E * m.q[(n * m.M + h) * m.P + p];
                    for (int d = 0; d < D; d++) pseudo[d] += a * q[(b * m.H + n) * D + d];
                }
                for (int64_t e = 0; e < m.K; e++) {
                    const float *cos = m.cos + (p * m.K + e) * D, *sin = m.sin + (p * m.K + e) * D, *row = pseudo;
                    if (m.cos) {
                        for (int d = 0; d < D; d++) turned[d] = pseudo[d] * cos[d] + pseudo[(d + D / 2) % D] * sin[d];
                        row = turned;
                    }
                    for (int64_t g = 0; g < m.G; g++) {
                        const float a = m.k[(g * m.L + h / R) * m.K + e];
                        float *to = of_query + g * D * X + (h * m.P + p) * m.K + e;
                        for (int d = 0; d < D; d++) to[d * X] = a * row[d];
                    }
                }
            }
        const float *keys = k->at + b * k->b, *values = v->at + b * v->b;
#pragma omp parallel for schedule(static) num_threads(threads) if (parallel)
        for (int64_t from = 0; from < T; from += PART)
            for (int64_t g = 0; g < m.G; g++) {
                const float *of_head = keys + g * k->g + from * k->t;
                const int64_t step = k->t, count = T - from < PART ? T - from : PART;
                products<2>(X, count, D, [=](int64_t t, int64_t d) { return of_head[t * step + d]; }, of_query + g * D * X,
                            scores + from * X, g > 0);
            }
        if (bias)
            for (int64_t x = 0; x < rows; x++)
                for (int64_t t = 0; t < T; t++) scores[t * X + x] += LOG2E * bias[b * bias_b + x * T + t];
        for (int64_t x = 0; x < X; x += LANES) {
            vec most = all(LOWEST);
            for (int64_t t = 0; t < T; t++) most = larger(load(scores + t * X + x), most);
            store(top + x, most);
        }
        for (int64_t x = 0; x < rows; x += m.K) /* one softmax over all pseudo-keys */
            for (int64_t e = 1; e <= m.K; e++) {
                if (e < m.K) top[x] = top[x + e] > top[x] ? top[x + e] : top[x];
                else for (int64_t i = 1; i < m.K; i++) top[x + i] = top[x];
            }
#pragma omp parallel for schedule(static) num_threads(threads) if (parallel)
        for (int64_t x = 0; x < X; x += LANES) {
            vec all_of = {};
            const vec most = load(top + x);
            for (int64_t t = 0; t < T; t++) {
                const vec e = exp2v(load(scores + t * X + x) - most);
                store(scores + t * X + x, e);
                all_of += e;
            }
            store(sum + x, all_of);
        }
        memset(weights, 0, sizeof(float) * T * Y);
#pragma omp parallel for schedule(static) num_threads(threads) if (parallel)
        for (int64_t h = 0; h < m.M; h++)
            for (int64_t p = 0; p < m.P; p++) { /* R is linear, so it may act on weights */
                const int64_t x = (h * m.P + p) * m.K;
                float whole = 0;
                for (int64_t e = 0; e < m.K; e++) whole += sum[x + e];
                const float factor = m.collapse[h * m.P + p] / whole;
                for (int64_t t = 0; t < T; t++)
                    for (int64_t e = 0; e < m.K; e++) weights[t * Y + h * m.K + e] += factor * scores[t * X + x + e];
            }
#pragma omp parallel for schedule(static) num_threads(threads) if (parallel)
        for (int64_t g = 0; g < m.G; g++) {
            const float *of_head = values + g * v->g;
            const int64_t step = v->t;
            products<1>(Y, D, T, [=](int64_t d, int64_t t) { return of_head[t * step + d]; }, weights, sums + g * D * Y, false);
        }
        for (int64_t h = 0; h < m.M; h++) {
            float *to = out + (b * m.M + h) * D;
            for (int d = 0; d < D; d++) {
                float heads = 0;
                for (int64_t g = 0; g < m.G; g++)
                    for (int64_t e = 0; e < m.K; e++) heads += m.v[(g * m.L + h / R) * m.K + e] * sums[(g * D + d) * Y + h * m.K + e];
                to[d] = heads;
            }
        }
    }
}
