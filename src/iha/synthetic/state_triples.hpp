/* 2-simplicial attention: q, k1, k2, v1, v2 (H, S, D).

   The weights of a query state, (S, S), are computed for SLOTS positions of the first key at a time, used for the
   tokens of the state and, in the backward pass, computed again. A token sees the second keys less than `window`
   positions away. */

#pragma once

#include "state_vectors.hpp"

/* For n rows of weights w[r] and the columns `at`: sums[r] = sum of w[r][c] x[c] and, with BACK, back[c] += w[r][c] rows[r]. */
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
        if (BACK) d[0] = d[1] = zero<feat>();
        for (int r = 0; r < R; r++) {
            const float e = line[r][c];
            acc[r] += e * v;
            if (BACK) d[r % 2] += e * row[r];
        }
        if (BACK) add(back + (size_t)c * D, d[0] + d[1]); /* last: fewer roundings of a large sum */
    }
    for (int r = 0; r < R; r++) sums[r] = acc[r];
}

/* to[r][c] += (rows[r] . x[c] + one) for the columns c that an example holds, B blocks of positions, each position in
   one of two states: times 0 or 1 instead of a scattered addition. */
template <int R, int B>
static inline void spread(float *const *to, int positions, reads is, int L, float one, const float (*rows)[D], reads packed) {
    block a[B][R];
    for (int b = 0; b < B; b++)
        for (int r = 0; r < R; r++) a[b][r] = zero<block>();
    for (int d = 0; d < D; d++)
        for (int b = 0; b < B; b++) {
            const block x = load<block>(packed + (b * D + d) * BLOCK);
            for (int r = 0; r < R; r++) a[b][r] += rows[r][d] * x;
        }
    for (int b = 0; b < B; b++) {
        const block zeros = load<block>(is + b * BLOCK), ones = load<block>(is + L + b * BLOCK);
        for (int r = 0; r < R; r++) {
            a[b][r] += all<block>(one);
            add(to[r] + b * BLOCK, a[b][r] * zeros);
            add(to[r] + positions + b * BLOCK, a[b][r] * ones);
        }
    }
}

/* The second keys that a token sees, as positions of its example: from ... to - 1. */
struct sight {
    int from, to;
    sight(int place, int N, int window)
        : from(place < window ? 0 : place - window + 1), to(N - place < window ? N : place + window) {}
};

/* The rows of weights that the tokens of one query state need, in parts of SLOTS positions. */
struct table {
    int S, positions, ids, W, height, parts; /* height: rows of a part, at most */
    ints start;
    int *row, *counts, *states, *columns, met;
    table(int S, int positions, ints start) : S(S), positions(positions), ids(S / positions), W(up(S)), start(start) {
        height = ids * SLOTS, parts = (positions + SLOTS - 1) / SLOTS;
        row = (int *)malloc((2 * S + parts + parts * height) * sizeof(int));
        columns = row + S, counts = columns + S, states = counts + parts;
    }
    ~table() { free(row); }
    /* For query state s: the states that its tokens see, columns[met], and each one's row in its part. */
    void of(int s) {
        met = 0;
        memset(counts, 0, parts * sizeof(int));
        for (int id = 0, j = 0; id < ids; id++)
            for (int at = 0; at < positions; at++, j++) {
                if (start[(size_t)s * S + j] == start[(size_t)s * S + j + 1]) continue;
                const int part = at / SLOTS;
                columns[met++] = j, states[part * height + counts[part]] = j, row[j] = counts[part]++;
            }
    }
    /* q[s] * k1[j] of the part's rows, and their products with the second keys, w (count, W). */
    void scores(writes w, float (*rows)[D], int part, const feat &mine, reads k1, reads keys) const {
        const int n = counts[part];
        for (int r = 0; r < n; r++) store(rows[r], mine * load<feat>(k1 + (size_t)states[part * height + r] * D));
        products(w, BLOCK, W, rows, n, keys, W / BLOCK);
        for (int r = 0; S < W && r < n; r++)
            for (int k = S; k < W; k++) w[(size_t)r * W + k] = -1e30f; /* no score: must not become the largest */
    }
    void exponentials(writes w, int part, float top) const {
        const block shift = all<block>(-top);
        for (int i = 0; i < counts[part] * W; i += BLOCK) store(w + i, exponential(load<block>(w + i) + shift));
    }
};
