/* 2-simplicial attention: q, k1, k2, v1, v2 (H, S, D).

   The weights of a query state, (S, S), are computed for SLOTS positions of the first key at a time, used for the
   tokens of the state and, in the backward pass, computed again. */

#pragma once

#include "state_vectors.hpp"

/* For R rows of weights and n columns `at`: acc[r] += w[r][c] x[c] and, unless it is null, back[c] += w[r][c] rows[r]. */
template <int R, bool BACK>
static inline void exchange(const float *const *w, int n, ints at, reads x, const float (*rows)[D], feat *sums, writes back) {
    feat acc[R], row[R];
    const float *line[R];
    for (int r = 0; r < R; r++) acc[r] = zero<feat>(), line[r] = w[r];
    if (BACK)
        for (int r = 0; r < R; r++) row[r] = load<feat>(rows[r]);
    for (int k = 0; k < n; k++) {
        const int c = at[k];
        const feat v = load<feat>(x + (size_t)c * D);
        feat d[2];
        if (BACK) d[0] = load<feat>(back + (size_t)c * D), d[1] = zero<feat>();
        for (int r = 0; r < R; r++) {
            const float e = line[r][c];
            acc[r] += e * v;
            if (BACK) d[r % 2] += e * row[r];
        }
        if (BACK) store(back + (size_t)c * D, d[0] + d[1]);
    }
    for (int r = 0; r < R; r++) sums[r] = acc[r];
}

template <bool BACK>
static void exchange(int R, const float *const *w, int n, ints at, reads x, const float (*rows)[D], feat *sums, writes back) {
    const int MOST = WIDEST / 2; /* what the registers hold */
    for (; R >= MOST; R -= MOST, w += MOST, sums += MOST) {
        exchange<MOST, BACK>(w, n, at, x, rows, sums, back);
        if (BACK) rows += MOST;
    }
    switch (R) {
#define CASE(r) case r: return exchange<r, BACK>(w, n, at, x, rows, sums, back)
        CASE(1); CASE(2); CASE(3); CASE(4); CASE(5); CASE(6); CASE(7);
    }
}

struct table {
    int S, positions, ids, W, height; /* height: rows of a part */
    ints first, start;
    table(int S, int positions, ints first, ints start)
        : S(S), positions(positions), ids(S / positions), W(up(S)), height(S / positions * SLOTS), first(first), start(start) {}
    int end(int slot) const { return slot + SLOTS < positions ? slot + SLOTS : positions; }
    bool met(int s, int j) const { return start[(size_t)s * S + j] < start[(size_t)s * S + j + 1]; }
    /* q[s] * k1[j] of the part's rows, and their products with the second keys, w (height, W). */
    void scores(writes w, float (*rows)[D], int s, int slot, const feat &mine, reads k1, reads keys) const {
        memset(rows, 0, (size_t)height * sizeof rows[0]);
        for (int id = 0; id < ids; id++) {
            bool any = false;
            for (int at = slot; at < end(slot); at++) {
                const int j = id * positions + at;
                if (met(s, j)) any = true, store(rows[id * SLOTS + at - slot], mine * load<feat>(k1 + (size_t)j * D));
            }
            writes to = w + (size_t)id * SLOTS * W;
            if (any) products(to, BLOCK, W, rows + id * SLOTS, SLOTS, keys, W / BLOCK);
            for (int r = 0; r < SLOTS; r++) { /* what is no score must not become the largest */
                const bool row = slot + r < end(slot) && met(s, id * positions + slot + r);
                for (int k = row ? S : 0; k < W; k++) to[(size_t)r * W + k] = -1e30f;
            }
        }
    }
    void exponentials(writes w, float top) const {
        for (int i = 0; i < height * W; i += BLOCK) store(w + i, exponential(load<block>(w + i) + all<block>(-top)));
    }
};

/* Kept for the backward pass: tops (H, S), what scores were shifted by, and totals (F, H). Returns whether all totals
   are safely above zero. */
extern "C" int triples_forward(int H, int S, int positions, int most, float scale, ints first, ints order, ints begin, ints length,
                               ints state, ints start, reads q, reads k1, reads k2, reads v1, reads v2, writes tops,
                               writes totals, writes out /* (F, H, D) */) {
    const table t(S, positions, first, start);
    const int W = t.W, parts = (positions + SLOTS - 1) / SLOTS, blocks = W / BLOCK;
    int in_range = 1, *local = locals(S, positions);
    float *keys = room((size_t)W * D), *weights = room((size_t)parts * t.height * W), *is = room((size_t)most * W);
    float(*rows)[D] = (float(*)[D])room((size_t)t.height * D);
    char *used = (char *)malloc((size_t)most * W / BLOCK);
    for (int h = 0; h < H; h++) {
        const size_t head = (size_t)h * S * D;
        pack(keys, k2 + head, S);
        for (int s = 0; s < S; s++) {
            if (first[s] == first[s + 1]) continue;
            const feat mine = scale * load<feat>(q + head + (size_t)s * D);
            float top = -INFINITY;
            for (int part = 0; part < parts; part++) {
                writes w = weights + (size_t)part * t.height * W;
                t.scores(w, rows, s, part * SLOTS, mine, k1 + head, keys);
                block best = load<block>(w);
                for (int i = BLOCK; i < t.height * W; i += BLOCK) best = larger(best, load<block>(w + i));
                top = fmaxf(top, largest(best));
            }
            tops[(size_t)h * S + s] = top;
            memset(is, 0, (size_t)(first[s + 1] - first[s]) * W * sizeof(float));
            memset(used, 0, (size_t)(first[s + 1] - first[s]) * blocks);
            for (int n = first[s]; n < first[s + 1]; n++) {
                const int f = order[n], i = n - first[s];
                ints seen = state + begin[f];
                for (int k = 0; k < length[f]; k++) is[(size_t)i * W + seen[k]] = 1, used[i * blocks + (unsigned)seen[k] / BLOCK] = 1;
                totals[(size_t)f * H + h] = 0;
                store(out + ((size_t)f * H + h) * D, zero<feat>());
            }
            for (int part = 0; part < parts; part++) {
                writes w = weights + (size_t)part * t.height * W;
                const int slot = part * SLOTS;
                t.exponentials(w, top);
                for (int n = first[s]; n < first[s + 1]; n++) {
                    const int f = order[n], N = length[f], R = (N < t.end(slot) ? N : t.end(slot)) - slot;
                    if (R <= 0) continue;
                    ints seen = state + begin[f];
                    const float *lines[SLOTS];
                    feat a[SLOTS], sums = load<feat>(out + ((size_t)f * H + h) * D);
                    for (int r = 0; r < R; r++) lines[r] = w + (size_t)local[seen[slot + r]] * W;
                    exchange<false>(R, lines, N, seen, v2 + head, nullptr, a, nullptr);
                    for (int r = 0; r < R; r++) sums += a[r] * load<feat>(v1 + head + (size_t)seen[slot + r] * D);
                    store(out + ((size_t)f * H + h) * D, sums);
                    /* The sum of the same weights: of whole columns, of which those in the example count. */
                    block total = zero<block>();
                    for (int b = 0; b < blocks; b++) {
                        if (!used[(n - first[s]) * blocks + b]) continue;
                        block column = zero<block>();
                        for (int r = 0; r < R; r++) column += load<block>(lines[r] + b * BLOCK);
                        total += column * load<block>(is + (size_t)(n - first[s]) * W + b * BLOCK);
                    }
                    totals[(size_t)f * H + h] += sum(total);
                }
            }
            for (int n = first[s]; n < first[s + 1]; n++) {
                const size_t at = (size_t)order[n] * H + h;
                in_range &= totals[at] > TINY;
                store(out + at * D, (1 / totals[at]) * load<feat>(out + at * D));
            }
        }
    }
    free(keys), free(weights), free(is), free(rows), free(used), free(local);
    return in_range;
}

/* Gradients of q, k1, k2, v1 and v2, which must come zeroed. */
extern "C" void triples_backward(int H, int S, int positions, int most, float scale, ints first, ints order, ints begin,
                                 ints length, ints state, ints start, reads q, reads k1, reads k2, reads v1, reads v2,
                                 reads tops, reads totals, reads out, reads grad, writes dq, writes dk1,
                                 writes dk2, writes dv1, writes dv2) {
    const table t(S, positions, first, start);
    const int W = t.W, L = up(positions);
    float *keys = room((size_t)W * D), *w = room((size_t)t.height * W), *ds = room((size_t)t.height * W);
    float *packed = room((size_t)most * L * D), *is = room((size_t)most * t.ids * L), *values = room((size_t)t.ids * L * D);
    float *lines = room((size_t)SLOTS * L);
    float(*rows)[D] = (float(*)[D])room((size_t)t.height * D);
    int *columns = (int *)malloc(S * sizeof(int)), *local = locals(S, positions);
    for (int k = 0; k < S; k++) columns[k] = k;
    for (int h = 0; h < H; h++) {
        const size_t head = (size_t)h * S * D;
        pack(keys, k2 + head, S);
        for (int id = 0; id < t.ids; id++)
            pack(values + (size_t)id * L * D, v2 + head + (size_t)id * positions * D, positions);
        for (int s = 0; s < S; s++) {
            if (first[s] == first[s + 1]) continue;
            memset(is, 0, (size_t)(first[s + 1] - first[s]) * t.ids * L * sizeof(float));
            for (int n = first[s]; n < first[s + 1]; n++) { /* the second values that a token sees, by position */
                const int f = order[n], N = length[f];
                ints seen = state + begin[f];
                writes mask = is + (size_t)(n - first[s]) * t.ids * L, to = packed + (size_t)(n - first[s]) * L * D;
                for (int k = 0; k < N; k++) mask[local[seen[k]] / SLOTS * L + k] = 1;
                for (int b = 0; b < up(N); b += BLOCK)
                    for (int d = 0; d < D; d++) {
                        block a = zero<block>();
                        for (int id = 0; id < t.ids; id++)
                            a += load<block>(mask + id * L + b) * load<block>(values + ((size_t)id * L + b) * D + d * BLOCK);
                        store(to + (size_t)b * D + d * BLOCK, a);
                    }
            }
            const feat mine = scale * load<feat>(q + head + (size_t)s * D);
            feat dmine = zero<feat>();
            for (int slot = 0; slot < positions; slot += SLOTS) {
                t.scores(w, rows, s, slot, mine, k1 + head, keys);
                t.exponentials(w, tops[(size_t)h * S + s]);
                memset(ds, 0, (size_t)t.height * W * sizeof(float));
                for (int n = first[s]; n < first[s + 1]; n++) {
                    const int f = order[n], N = length[f], R = (N < t.end(slot) ? N : t.end(slot)) - slot;
                    if (R <= 0) continue;
                    ints seen = state + begin[f];
                    const feat g = (1 / totals[(size_t)f * H + h]) * load<feat>(grad + ((size_t)f * H + h) * D);
                    const float one = -sum(g * load<feat>(out + ((size_t)f * H + h) * D));
                    float mixed[SLOTS][D] = {{0}};
                    const float *line[SLOTS];
                    feat a[SLOTS];
                    for (int r = 0; r < R; r++) {
                        store(mixed[r], g * load<feat>(v1 + head + (size_t)seen[slot + r] * D));
                        line[r] = w + (size_t)local[seen[slot + r]] * W;
                    }
                    exchange<true>(R, line, N, seen, v2 + head, mixed, a, dv2 + head);
                    for (int r = 0; r < R; r++) add(dv1 + head + (size_t)seen[slot + r] * D, g * a[r]);
                    /* Of the weights: times 0 or 1 instead of a scattered addition. */
                    products(lines, BLOCK, L, mixed, SLOTS, packed + (size_t)(n - first[s]) * L * D, up(N) / BLOCK);
                    for (int r = 0; r < R; r++) {
                        writes to = ds + (line[r] - w);
                        reads from = lines + (size_t)r * L, mask = is + (size_t)(n - first[s]) * t.ids * L;
                        int k = 0;
                        for (; k < N && k + BLOCK <= positions; k += BLOCK) {
                            const block a = load<block>(from + k) + all<block>(one);
                            for (int id = 0; id < t.ids; id++) add(to + id * positions + k, a * load<block>(mask + id * L + k));
                        }
                        for (; k < N; k++)
                            for (int id = 0; id < t.ids; id++) to[id * positions + k] += mask[id * L + k] * (from[k] + one);
                    }
                }
                /* Through the scores, which are trilinear in q, k1 and k2. */
                for (int i = 0; i < t.height * W; i += BLOCK) store(ds + i, load<block>(ds + i) * load<block>(w + i));
                for (int id = 0; id < t.ids; id++) {
                    const int j = id * positions + slot, R = t.end(slot) - slot;
                    const float *line[SLOTS];
                    feat a[SLOTS];
                    for (int r = 0; r < R; r++) line[r] = ds + (size_t)(id * SLOTS + r) * W;
                    exchange<true>(R, line, S, columns, k2 + head, rows + id * SLOTS, a, dk2 + head);
                    for (int r = 0; r < R; r++) {
                        dmine += a[r] * load<feat>(k1 + head + (size_t)(j + r) * D);
                        add(dk1 + head + (size_t)(j + r) * D, a[r] * mine);
                    }
                }
            }
            add(dq + head + (size_t)s * D, scale * dmine);
        }
    }
    free(keys), free(w), free(ds), free(packed), free(is), free(values), free(lines), free(rows), free(columns), free(local);
}
