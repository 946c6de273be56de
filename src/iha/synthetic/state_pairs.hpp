/* Interleaved heads; with P = 1 plain heads. q, k, v (H, S, P, D).

   Nothing of the size of the table of weights goes through memory: the rows of one state (or of 8 / P states) are
   computed, used for its tokens and, in the backward pass, computed again. */

#pragma once

#include "state_vectors.hpp"

static const int GROUP = P < 8 && 8 % P == 0 ? 8 / P : 1; /* states at a time */
static const int ROWS = (GROUP * P + 7) / 8 * 8;           /* their pseudo-queries, filled up */
static const int STEP = P % 4 ? 1 : P % 8 || WIDEST < 16 ? 4 : 8; /* pseudo-heads at a time: their sums stay in registers */

/* The weight of key c in row r of a group. */
static inline float &weight(float *w, unsigned c, unsigned r) { return w[(c / BLOCK * ROWS + r) * BLOCK + c % BLOCK]; }
/* The same of pseudo-key i of state j. */
static inline float &weight(float *w, unsigned j, unsigned i, unsigned r) {
    return BLOCK % P ? weight(w, j * P + i, r) : (&weight(w, j * P, 0))[r * BLOCK + i];
}

/* The pseudo-queries of a group of states, times scale. */
static void queries(float (*rows)[D], reads q, int s, int S, float scale) {
    memset(rows, 0, sizeof rows[0] * ROWS);
    const int n = (S - s < GROUP ? S - s : GROUP) * P;
    for (int r = 0; r < n; r++) store(rows[r], scale * load<feat>(q + ((size_t)s * P + r) * D));
}

/* Scores into w (blocks, ROWS, BLOCK), and the largest of each row into tops. */
static void scores(writes w, writes tops, const float (*rows)[D], reads keys, int K) {
    const int blocks = up(K) / BLOCK;
    products(w, ROWS * BLOCK, BLOCK, rows, ROWS, keys, blocks);
    for (int c = K; c < up(K); c++)
        for (int r = 0; r < ROWS; r++) weight(w, c, r) = -1e30f;
    if (!tops) return;
    for (int r = 0; r < ROWS; r++) {
        block best = load<block>(w + r * BLOCK);
        for (int b = 1; b < blocks; b++) best = larger(best, load<block>(w + ((size_t)b * ROWS + r) * BLOCK));
        tops[r] = largest(best);
    }
}

static void exponentials(writes w, reads tops, int K) {
    for (int b = 0; b < up(K) / BLOCK; b++)
        for (int r = 0; r < ROWS; r++) {
            float *at = w + ((size_t)b * ROWS + r) * BLOCK;
            store(at, exponential(load<block>(at) + all<block>(-tops[r])));
        }
}

/* a += b, of P numbers. */
static inline void plus(float *a, const float *b) {
    if (P % 8)
        for (int p = 0; p < P; p++) a[p] += b[p];
    else
        for (int p = 0; p < P; p += 8) add(a + p, load<eight>(b + p));
}

static inline float smallest(const float *a) {
    float x = a[0];
    for (int p = 1; p < P; p++) x = fminf(x, a[p]);
    return x;
}
