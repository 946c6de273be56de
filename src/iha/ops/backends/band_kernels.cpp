/* Softmax attention in which every query row sees one contiguous range of keys, forward and backward (band_native.py).

   D, the features of a head, is given when compiling (-DD=64). All numbers are float32. Lanes of a vector are *queries*:
   scores are kept transposed, [key][query], so that everything a query owns (its maximum, its sum, its range of keys)
   is one lane, softmax needs no sums across lanes, and a mask is a comparison of the lane's range with the key's index.
   A product then reads one operand as vectors of queries and broadcasts the other from rows as they lie in memory:

       scores   [key][query]     = K[key][d]   * Qt[d][query]        rows of K broadcast, queries transposed per block
       output   [d][query]      += V[key][d]   * weights[key][query]
       grad K   [key][d]        += dS[key][query] * Q[query][d]      the one product with features in the lanes

   Pairs of queries and keys outside all ranges are skipped in steps of KEYS keys by one vector of queries. */

#include "vectors.h"

#if LANES == 16
static const int KEYS = 8, FEATURES = 8; /* with VECTORS of queries 24 sums: 32 registers hold them */
#else
static const int KEYS = 4, FEATURES = 4;
#endif
static const int VECTORS = 3, ROWS = VECTORS * LANES; /* queries of a block */
static const int BLOCK = 64;                           /* keys of a block: their scores stay in the first-level cache */
static const int DV = D / LANES;                       /* vectors of a row */
static const int PART = DV < 4 ? DV : LANES == 16 ? 4 : 2;    /* of these at a time in grad_keys */
static const int TALL = PART * 8 <= LANES ? 8 : 4;            /* keys at a time there */
static_assert(D % LANES == 0 && D % FEATURES == 0 && BLOCK % KEYS == 0 && KEYS % 4 == 0, "whole vectors");

struct Block { /* of queries, and what each sees */
    ivec first[VECTORS], last[VECTORS];                                              /* keys [first, last) */
    int from[VECTORS], from_all[VECTORS], to_all[VECTORS], to[VECTORS]; /* seen by any lane, by all lanes */
    int low, high;

    void see(const int32_t *f, const int32_t *l, int count) {
        low = INT32_MAX, high = 0;
        for (int v = 0; v < VECTORS; v++) {
            from[v] = to_all[v] = INT32_MAX, from_all[v] = to[v] = 0;
            for (int i = 0; i < LANES; i++) {
                int row = v * LANES + i < count ? v * LANES + i : count - 1; /* rows that are none do as the last one */
                int a = f[row], b = l[row];
                first[v][i] = a, last[v][i] = b;
                if (a >= b) a = from[v], b = to[v], to_all[v] = 0; /* sees nothing */
                from[v] = a < from[v] ? a : from[v], to[v] = b > to[v] ? b : to[v];
                from_all[v] = a > from_all[v] ? a : from_all[v], to_all[v] = b < to_all[v] ? b : to_all[v];
            }
            from[v] = from[v] / KEYS * KEYS, to[v] = (to[v] + KEYS - 1) / KEYS * KEYS;
            if (from[v] >= to[v]) from[v] = to[v] = 0;
            else low = from[v] < low ? from[v] : low, high = to[v] > high ? to[v] : high;
        }
        if (low > high) low = high = 0;
    }
};

struct Run { /* keys [a, b) that the vectors [v, w) of a block see, wholly or (masked) in part */
    int a, b, v, w;
    bool masked;
};

/* The keys [a, b) cut where a vector begins or ends to see them. */
static int cut(const Block &q, int a, int b, Run *runs) {
    int count = 0;
    for (int j = a; j < b;) {
        int next = b, v0 = VECTORS, v1 = 0;
        for (int v = 0; v < VECTORS; v++) {
            if (q.from[v] > j && q.from[v] < next) next = q.from[v];
            if (q.to[v] > j && q.to[v] < next) next = q.to[v];
            if (q.from[v] <= j && j < q.to[v]) v0 = v < v0 ? v : v0, v1 = v + 1;
        }
        if (v0 < v1) {
            /* Where all lanes see a part of these keys, that part needs no mask. */
            int full = 0, end = INT32_MAX;
            for (int v = v0; v < v1; v++) full = q.from_all[v] > full ? q.from_all[v] : full, end = q.to_all[v] < end ? q.to_all[v] : end;
            full = (full + KEYS - 1) / KEYS * KEYS, end = end / KEYS * KEYS;
            bool masked = j < full || j >= end;
            int stop = masked ? (j < full && full < end ? full : next) : end;
            if (stop < next) next = stop;
            runs[count++] = {j, next, v0, v1, masked};
        }
        j = next;
    }
    return count;
}

/* sums[r][v] = start[v] + k[r] . (query v), for KEYS rows of k and V vectors of queries. */
template <int V> static inline __attribute__((always_inline)) void dots(vec (&sums)[KEYS][V], const vec *start, const float *k, const float *qt) {
    UNROLL for (int r = 0; r < KEYS; r++) UNROLL for (int v = 0; v < V; v++) sums[r][v] = start[v];
    for (int d = 0; d < D; d++) {
        vec q[V];
        UNROLL for (int v = 0; v < V; v++) q[v] = load(qt + d * ROWS + v * LANES);
        UNROLL for (int r = 0; r < KEYS; r++) {
            vec x = all(k[r * D + d]);
            UNROLL for (int v = 0; v < V; v++) sums[r][v] += x * q[v];
        }
    }
}

template <int V> static void scores(const Block &q, const Run &run, const float *k, const float *qt, float *s, int base, vec *top) {
    vec most[V];
    const vec zero[V] = {};
    for (int v = 0; v < V; v++) most[v] = top[run.v + v];
    for (int j = run.a; j < run.b; j += KEYS) {
        vec sums[KEYS][V];
        dots<V>(sums, zero, k + (size_t)j * D, qt + run.v * LANES);
        float *row = s + (j - base) * ROWS + run.v * LANES;
        UNROLL for (int r = 0; r < KEYS; r++) UNROLL for (int v = 0; v < V; v++) {
            vec x = sums[r][v];
            if (run.masked) x = (q.first[run.v + v] <= j + r) & (q.last[run.v + v] > j + r) ? x : all(-INFINITY);
            most[v] = larger(x, most[v]);
            store(row + r * ROWS + v * LANES, x);
        }
    }
    for (int v = 0; v < V; v++) top[run.v + v] = most[v];
}

template <int V> static void exponentials(const Run &run, float factor, float *s, int base, const vec *top, vec *total) {
    vec sums[V] = {};
    for (int j = run.a; j < run.b; j++)
        UNROLL for (int v = 0; v < V; v++) {
            float *p = s + (j - base) * ROWS + (run.v + v) * LANES;
            vec x = exp2v((load(p) - top[run.v + v]) * factor);
            store(p, x);
            sums[v] += x;
        }
    for (int v = 0; v < V; v++) total[run.v + v] += sums[v];
}

/* out[d] += sum over keys of x[key][d] * w[key], for V vectors of queries. */
template <int V> static void add_values(const Run &run, const float *x, const float *w, int base, float *out) {
    w += run.v * LANES, out += run.v * LANES;
    for (int d = 0; d < D; d += FEATURES) {
        vec sums[FEATURES][V];
        UNROLL for (int r = 0; r < FEATURES; r++) UNROLL for (int v = 0; v < V; v++) sums[r][v] = vec{};
        const float *row = x + (size_t)run.a * D + d, *weight = w + (run.a - base) * ROWS;
        for (int j = run.a; j < run.b; j++, row += D, weight += ROWS) {
            vec p[V];
            UNROLL for (int v = 0; v < V; v++) p[v] = load(weight + v * LANES);
            UNROLL for (int r = 0; r < FEATURES; r++) {
                vec y = all(row[r]);
                UNROLL for (int v = 0; v < V; v++) sums[r][v] += y * p[v];
            }
        }
        UNROLL for (int r = 0; r < FEATURES; r++) UNROLL for (int v = 0; v < V; v++) {
            float *p = out + (d + r) * ROWS + v * LANES;
            store(p, load(p) + sums[r][v]);
        }
    }
}

/* weights = 2^(scores - lse) and grad scores = weights * (dO . v - delta), both [key][query]. `rest` is what lse lacks to
   be exact, negated. */
template <int V>
static void grad_scores(const Block &q, const Run &run, float factor, const float *k, const float *x, const float *qt, const float *dot, float *s,
                        float *ds, int base, const vec *lse, const vec *rest, const vec *minus_delta) {
    const vec zero[V] = {};
    for (int j = run.a; j < run.b; j += KEYS) {
        vec sums[KEYS][V];
        float *p = s + (j - base) * ROWS + run.v * LANES, *dp = ds + (j - base) * ROWS + run.v * LANES;
        dots<V>(sums, zero, k + (size_t)j * D, qt + run.v * LANES);
        UNROLL for (int r = 0; r < KEYS; r++) UNROLL for (int v = 0; v < V; v++) store(p + r * ROWS + v * LANES, sums[r][v]);
        dots<V>(sums, minus_delta + run.v, x + (size_t)j * D, dot + run.v * LANES);
        UNROLL for (int r = 0; r < KEYS; r++) UNROLL for (int v = 0; v < V; v++) {
            vec w = exp2v((load(p + r * ROWS + v * LANES) * factor - lse[run.v + v]) + rest[run.v + v]);
            if (run.masked) w = (q.first[run.v + v] <= j + r) & (q.last[run.v + v] > j + r) ? w : vec{};
            store(p + r * ROWS + v * LANES, w);
            store(dp + r * ROWS + v * LANES, w * sums[r][v]);
        }
    }
}

/* out[key] += sum over the queries of the run of w[key][query] * x[query]. */
static void grad_keys(const Run &run, const float *w, const float *x, int base, float *out) {
    for (int j = run.a; j < run.b; j += TALL)
        for (int d = 0; d < D; d += PART * LANES) {
            vec sums[TALL][PART];
            UNROLL for (int r = 0; r < TALL; r++) UNROLL for (int v = 0; v < PART; v++) sums[r][v] = vec{};
            const float *weight = w + (j - base) * ROWS;
            for (int i = run.v * LANES; i < run.w * LANES; i++) {
                vec y[PART];
                UNROLL for (int v = 0; v < PART; v++) y[v] = load(x + i * D + d + v * LANES);
                UNROLL for (int r = 0; r < TALL; r++) {
                    vec c = all(weight[r * ROWS + i]);
                    UNROLL for (int v = 0; v < PART; v++) sums[r][v] += c * y[v];
                }
            }
            UNROLL for (int r = 0; r < TALL; r++) UNROLL for (int v = 0; v < PART; v++) {
                float *p = out + (size_t)(j + r) * D + d + v * LANES;
                store(p, load(p) + sums[r][v]);
            }
        }
}

/* A call with the number of vectors as a constant. */
#define BY_VECTORS(function, run, ...)                                                                                                    \
    switch ((run).w - (run).v) {                                                                                                          \
    case 1: function<1>(__VA_ARGS__); break;                                                                                              \
    case 2: function<2>(__VA_ARGS__); break;                                                                                              \
    default: function<3>(__VA_ARGS__);                                                                                                    \
    }

/* Rows of one head, `stride` numbers apart, one after another; zeros up to `padded` rows. */
static void gather(const float *x, int64_t stride, int count, int padded, float *into) {
    for (int i = 0; i < count; i++) memcpy(into + (size_t)i * D, x + i * stride, D * sizeof(float));
    memset(into + (size_t)count * D, 0, (size_t)(padded - count) * D * sizeof(float));
}

/* x [ROWS][D] to y [D][ROWS], times a factor; and back. */
static void turn(const float *x, float factor, float *y) {
    for (int d = 0; d < D; d += 4)
        for (int i = 0; i < ROWS; i++) UNROLL for (int e = 0; e < 4; e++) y[(d + e) * ROWS + i] = factor * x[i * D + d + e];
}
static void turn_back(const float *y, const float *factor, int count, float *x, int64_t stride) {
    for (int i = 0; i < count; i++) {
        float c = factor[i];
        for (int d = 0; d < D; d++) x[i * stride + d] = c * y[d * ROWS + i];
    }
}

struct Sizes { /* strides in numbers: of sequence and row; heads of a row are D apart */
    int64_t B, Q, K, H, G, threads, q_b, q_n, k_b, k_n, v_b, v_n, o_b, o_n, l_b, l_n, g_b, g_n, range_b;
};

static int up(int64_t n) { return (int)((n + BLOCK - 1) / BLOCK * BLOCK); }

extern "C" void band_forward(const Sizes *z, float scale, const float *q, const float *k, const float *v, const int32_t *first,
                             const int32_t *last, float *out, float *lse) {
    const Sizes &s = *z;
    /* Scores stay unscaled until their difference to the largest is taken: one rounding instead of one per feature. */
    const float sign = scale < 0 ? -1 : scale > 0 ? 1 : 0, base2 = scale == 0 ? 1 : std::fabs(scale) * LOG2E;
    const int64_t blocks = (s.Q + ROWS - 1) / ROWS, units = s.B * s.G;
    /* Parts of a sequence, so that there is work for all threads; each copies the keys that it needs. */
    const int64_t parts = units >= 2 * s.threads ? 1 : blocks < 2 * s.threads ? 1 : 2 * s.threads, size = (blocks + parts - 1) / parts;
#pragma omp parallel for schedule(dynamic, 1) num_threads(s.threads) if (s.threads > 1)
    for (int64_t unit = 0; unit < units * parts; unit++) {
        const int64_t b = unit / parts / s.G, g = unit / parts % s.G, from = unit % parts * size * ROWS;
        const int64_t to = from + size * ROWS < s.Q ? from + size * ROWS : s.Q;
        const int32_t *firsts = first + b * s.range_b, *lasts = last + b * s.range_b;
        int64_t low = s.K, high = 0;
        for (int64_t i = from; i < to; i++) low = firsts[i] < low ? firsts[i] : low, high = lasts[i] > high ? lasts[i] : high;
        low = low / BLOCK * BLOCK;
        if (low >= high) low = high = 0;
        const int padded = up(high - low);
        float *keys = room.get((size_t)(2 * padded + 3 * ROWS + BLOCK) * D + BLOCK * ROWS + ROWS), *values = keys + (size_t)padded * D;
        float *rows = values + (size_t)padded * D, *qt = rows + ROWS * D, *sums = qt + ROWS * D, *weights = sums + ROWS * D;
        float *factor = weights + BLOCK * ROWS;
        gather(k + b * s.k_b + low * s.k_n + g * D, s.k_n, (int)(high - low), padded, keys);
        gather(v + b * s.v_b + low * s.v_n + g * D, s.v_n, (int)(high - low), padded, values);
        for (int64_t h = g * (s.H / s.G); h < (g + 1) * (s.H / s.G); h++)
            for (int64_t i = from; i < to; i += ROWS) {
                const int count = (int)(to - i < ROWS ? to - i : ROWS);
                Block block;
                int32_t f[ROWS], l[ROWS];
                for (int r = 0; r < count; r++) f[r] = (int32_t)(firsts[i + r] - low), l[r] = (int32_t)(lasts[i + r] - low);
                block.see(f, l, count);
                gather(q + b * s.q_b + i * s.q_n + h * D, s.q_n, count, ROWS, rows);
                turn(rows, sign, qt);
                memset(sums, 0, sizeof(float) * D * ROWS);
                vec top[VECTORS], total[VECTORS];
                for (int x = 0; x < VECTORS; x++) top[x] = all(LOWEST), total[x] = vec{};
                for (int j = block.low / BLOCK * BLOCK; j < block.high; j += BLOCK) {
                    Run runs[4 * VECTORS + 4];
                    const int n = cut(block, j < block.low ? block.low : j, j + BLOCK < block.high ? j + BLOCK : block.high, runs);
                    vec before[VECTORS];
                    for (int x = 0; x < VECTORS; x++) before[x] = top[x];
                    for (int r = 0; r < n; r++) BY_VECTORS(scores, runs[r], block, runs[r], keys, qt, weights, j, top)
                    bool moved = false;
                    for (int x = 0; x < VECTORS; x++)
                        for (int e = 0; e < LANES; e++) moved |= before[x][e] != top[x][e];
                    if (moved)
                        for (int x = 0; x < VECTORS; x++) {
                            const vec less = exp2v((before[x] - top[x]) * base2);
                            total[x] *= less;
                            for (int d = 0; d < D; d++) store(sums + d * ROWS + x * LANES, load(sums + d * ROWS + x * LANES) * less);
                        }
                    for (int r = 0; r < n; r++) {
                        BY_VECTORS(exponentials, runs[r], runs[r], base2, weights, j, top, total)
                        BY_VECTORS(add_values, runs[r], runs[r], values, weights, j, sums)
                    }
                }
                for (int r = 0; r < count; r++) {
                    const float sum = total[r / LANES][r % LANES];
                    factor[r] = f[r] < l[r] ? 1 / sum : 0;
                    lse[b * s.l_b + (i + r) * s.l_n + h] = (float)(M_LN2 * ((double)base2 * top[r / LANES][r % LANES] + std::log2((double)sum)));
                }
                turn_back(sums, factor, count, out + b * s.o_b + i * s.o_n + h * D, s.o_n);
            }
    }
}

/* grad_q like q, grad_k and grad_v like k and v but contiguous: (B, Q, H, D) and (B, K, G, D). */
extern "C" void band_backward(const Sizes *z, float scale, const float *grad, const float *q, const float *k, const float *v,
                              const float *out, const float *lse, const int32_t *first, const int32_t *last, float *grad_q,
                              float *grad_k, float *grad_v) {
    const Sizes &s = *z;
    /* Scores stay unscaled until their difference to the largest is taken: one rounding instead of one per feature. */
    const float sign = scale < 0 ? -1 : scale > 0 ? 1 : 0, base2 = scale == 0 ? 1 : std::fabs(scale) * LOG2E;
#pragma omp parallel for schedule(dynamic, 1) num_threads(s.threads) if (s.threads > 1)
    for (int64_t unit = 0; unit < s.B * s.G; unit++) {
        const int64_t b = unit / s.G, g = unit % s.G;
        const int32_t *firsts = first + b * s.range_b, *lasts = last + b * s.range_b;
        const int padded = up(s.K);
        float *keys = room.get((size_t)(4 * padded + 5 * ROWS) * D + 2 * BLOCK * ROWS + 2 * ROWS), *values = keys + (size_t)padded * D;
        float *dk = values + (size_t)padded * D, *dv = dk + (size_t)padded * D, *rows = dv + (size_t)padded * D, *grads = rows + ROWS * D;
        float *qt = grads + ROWS * D, *dot = qt + ROWS * D, *dq = dot + ROWS * D, *weights = dq + ROWS * D, *ds = weights + BLOCK * ROWS;
        float *factor = ds + BLOCK * ROWS;
        for (int r = 0; r < ROWS; r++) factor[r] = scale;
        gather(k + b * s.k_b + g * D, s.k_n, (int)s.K, padded, keys);
        gather(v + b * s.v_b + g * D, s.v_n, (int)s.K, padded, values);
        memset(dk, 0, sizeof(float) * 2 * padded * D);
        for (int64_t h = g * (s.H / s.G); h < (g + 1) * (s.H / s.G); h++)
            for (int64_t i = 0; i < s.Q; i += ROWS) {
                const int count = (int)(s.Q - i < ROWS ? s.Q - i : ROWS);
                Block block;
                block.see(firsts + i, lasts + i, count);
                gather(q + b * s.q_b + i * s.q_n + h * D, s.q_n, count, ROWS, rows);
                gather(grad + b * s.g_b + i * s.g_n + h * D, s.g_n, count, ROWS, grads);
                turn(rows, sign, qt);
                turn(grads, 1, dot);
                memset(dq, 0, sizeof(float) * D * ROWS);
                vec sum[VECTORS], rest[VECTORS], minus_delta[VECTORS];
                for (int r = 0; r < ROWS; r++) {
                    vec dots = {};
                    const float *o = out + b * s.o_b + (i + r) * s.o_n + h * D;
                    for (int d = 0; r < count && d < D; d += LANES) dots += load(grads + r * D + d) * load(o + d);
                    float total = 0;
                    for (int e = 0; e < LANES; e++) total += dots[e];
                    minus_delta[r / LANES][r % LANES] = -total;
                    const double whole = r < count ? M_LOG2E * lse[b * s.l_b + (i + r) * s.l_n + h] : 0;
                    sum[r / LANES][r % LANES] = (float)whole;
                    rest[r / LANES][r % LANES] = std::isfinite(whole) ? (float)((float)whole - whole) : 0;
                }
                for (int j = block.low / BLOCK * BLOCK; j < block.high; j += BLOCK) {
                    Run runs[4 * VECTORS + 4];
                    const int n = cut(block, j < block.low ? block.low : j, j + BLOCK < block.high ? j + BLOCK : block.high, runs);
                    for (int r = 0; r < n; r++) {
                        BY_VECTORS(grad_scores, runs[r], block, runs[r], base2, keys, values, qt, dot, weights, ds, j, sum, rest, minus_delta)
                        grad_keys(runs[r], weights, grads, j, dv);
                        grad_keys(runs[r], ds, rows, j, dk);
                        BY_VECTORS(add_values, runs[r], runs[r], keys, ds, j, dq)
                    }
                }
                turn_back(dq, factor, count, grad_q + (b * s.Q + i) * s.H * D + h * D, s.H * D);
            }
        for (int64_t j = 0; j < s.K; j++)
            for (int d = 0; d < D; d++) {
                grad_k[((b * s.K + j) * s.G + g) * D + d] = scale * dk[j * D + d];
                grad_v[((b * s.K + j) * s.G + g) * D + d] = dv[j * D + d];
            }
    }
}
