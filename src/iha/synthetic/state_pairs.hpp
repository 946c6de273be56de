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

/* Kept for the backward pass: tops, what scores were shifted by, and totals, what a row is divided by, both (F, H, P).
   The tokens of a state share the largest score of all states. One that sees only far smaller scores is computed again,
   alone, shifted by its own largest. */
extern "C" void pairs_forward(int from_head, int to_head, int H, int S, int positions, float scale, ints first,
                              ints order, ints begin, ints length, ints state, ints start, reads q, reads k, reads v,
                              writes tops, writes totals, writes out /* (F, H, P, D) */) {
    const int K = S * P, ids = S / positions, groups = (S + GROUP - 1) / GROUP;
    float *keys = room((size_t)up(K) * D), *w = room((size_t)up(K) * ROWS);
    float *sums_of = room((size_t)ids * SLOTS * P * D), *ones = room((size_t)ids * SLOTS * P), *line = room(up(K));
    int *local = locals(S, positions);
    for (int h = from_head; h < to_head; h++) {
        pack(keys, k + (size_t)h * K * D, K);
        for (int g = 0; g < groups; g++) {
            const int from = g * GROUP, to = from + GROUP < S ? from + GROUP : S;
            if (first[from] == first[to]) continue;
            float rows[ROWS][D], top[ROWS];
            queries(rows, q + (size_t)h * K * D, from, S, scale);
            /* All tokens of the group, then those that must be alone: token order[next], of state `states`. */
            int states = from, next = first[from] - 1;
            for (int alone = 0; alone == 0 || next < first[to]; alone = 1) {
                scores(w, top, rows, keys, K);
                for (int p = 0; alone && p < P; p++) {
                    const int f = order[next], r = (states - from) * P + p;
                    top[r] = -1e30f;
                    for (int j = 0; j < length[f]; j++)
                        for (int i = 0; i < P; i++) top[r] = fmaxf(top[r], weight(w, state[begin[f] + j], i, r));
                }
                exponentials(w, top, K);
                for (int s = states; s < (alone ? states + 1 : to); s++) {
                    const int row = (s - from) * P, begins = alone ? next : first[s], ends = alone ? next + 1 : first[s + 1];
                    for (int n = begins; n < ends; n++)
                        memcpy(tops + ((size_t)order[n] * H + h) * P, top + row, P * sizeof(float));
                    if (P == 1) { /* a key state is one key */
                        for (int b = 0; b < up(K) / BLOCK; b++) store(line + b * BLOCK, load<block>(&weight(w, b * BLOCK, row)));
                        for (int n = begins; n < ends; n++) {
                            const int f = order[n], N = length[f];
                            ints seen = state + begin[f];
                            feat a[4];
                            float total[4] = {0};
                            for (int i = 0; i < 4; i++) a[i] = zero<feat>();
                            auto take = [&](int j, int i) {
                                a[i] += line[seen[j]] * load<feat>(v + ((size_t)h * S + seen[j]) * D), total[i] += line[seen[j]];
                            };
                            int j = 0;
                            for (; j + 4 <= N; j += 4)
                                for (int i = 0; i < 4; i++) take(j + i, i);
                            for (; j < N; j++) take(j, 0);
                            const float sum = (total[0] + total[1]) + (total[2] + total[3]);
                            totals[(size_t)f * H + h] = sum;
                            store(out + ((size_t)f * H + h) * D, (1 / sum) * ((a[0] + a[1]) + (a[2] + a[3])));
                        }
                        continue;
                    }
                    for (int n = begins; n < ends; n++) {
                        memset(out + ((size_t)order[n] * H + h) * P * D, 0, P * D * sizeof(float));
                        memset(totals + ((size_t)order[n] * H + h) * P, 0, P * sizeof(float));
                    }
                    for (int slot = 0; slot < positions; slot += SLOTS) {
                        const int end = slot + SLOTS < positions ? slot + SLOTS : positions;
                        /* What a key state adds to numerator and denominator: summed over its pseudo-keys for all tokens. */
                        for (int id = 0; id < ids; id++)
                            for (int at = slot; at < end; at++) {
                                const int j = id * positions + at, mine = id * SLOTS + at - slot;
                                if (start[(size_t)s * S + j] == start[(size_t)s * S + j + 1]) continue;
                                for (int p = 0; p < P; p += STEP) {
                                    feat a[STEP];
                                    for (int r = 0; r < STEP; r++) a[r] = zero<feat>();
#pragma GCC unroll 8
                                    for (int i = 0; i < P; i++) {
                                        const feat x = load<feat>(v + ((size_t)h * K + j * P + i) * D);
                                        for (int r = 0; r < STEP; r++) a[r] += weight(w, j, i, row + p + r) * x;
                                    }
                                    for (int r = 0; r < STEP; r++) store(sums_of + ((size_t)mine * P + p + r) * D, a[r]);
                                }
#if P % 8 == 0
                                for (int p = 0; p < P; p += 8) {
                                    eight total = zero<eight>(), x[8];
                                    for (int i = 0; i < P; i += 8) {
                                        for (int r = 0; r < 8; r++) x[r] = load<eight>(&weight(w, j, i, row + p + r));
                                        total += sums(x);
                                    }
                                    store(ones + (size_t)mine * P + p, total);
                                }
#else
                                for (int p = 0; p < P; p++) {
                                    float total = 0;
                                    for (int i = 0; i < P; i++) total += weight(w, j, i, row + p);
                                    ones[(size_t)mine * P + p] = total;
                                }
#endif
                            }
                        for (int n = begins; n < ends; n++) {
                            const int f = order[n], N = length[f] < end ? length[f] : end;
                            ints seen = state + begin[f];
                            writes to_out = out + ((size_t)f * H + h) * P * D, to_totals = totals + ((size_t)f * H + h) * P;
                            for (int p = 0; p < P; p += STEP) {
                                feat a[STEP];
                                for (int r = 0; r < STEP; r++) a[r] = load<feat>(to_out + (p + r) * D);
                                for (int j = slot; j < N; j++) {
                                    reads x = sums_of + ((size_t)local[seen[j]] * P + p) * D;
                                    for (int r = 0; r < STEP; r++) a[r] += load<feat>(x + r * D);
                                }
                                for (int r = 0; r < STEP; r++) store(to_out + (p + r) * D, a[r]);
                            }
                            for (int j = slot; j < N; j++) plus(to_totals, ones + (size_t)local[seen[j]] * P);
                        }
                    }
                    for (int n = begins; n < ends; n++) {
                        const size_t at = ((size_t)order[n] * H + h) * P;
                        for (int p = 0; p < P; p++)
                            store(out + (at + p) * D, (1 / totals[at + p]) * load<feat>(out + (at + p) * D));
                    }
                }
                for (next++; next < first[to]; next++)
                    if (smallest(totals + ((size_t)order[next] * H + h) * P) < TINY) break;
                while (next >= first[states + 1] && states + 1 < to) states++;
            }
        }
    }
    free(keys), free(w), free(sums_of), free(ones), free(line), free(local);
}

/* Gradients of q, k and v, which must come zeroed. */
extern "C" void pairs_backward(int from_head, int to_head, int H, int S, int most, float scale, ints first, ints order,
                               ints start, ints who, reads q, reads k, reads v, reads tops, reads totals, reads out,
                               reads grad, writes dq, writes dk, writes dv) {
    const int K = S * P, groups = (S + GROUP - 1) / GROUP;
    float *keys = room((size_t)up(K) * D), *values = room((size_t)up(K) * D), *w = room((size_t)up(K) * ROWS);
    float *grads = room((size_t)most * P * D), *ones = room((size_t)most * P);
    for (int h = from_head; h < to_head; h++) {
        pack(keys, k + (size_t)h * K * D, K), pack(values, v + (size_t)h * K * D, K);
        for (int g = 0; g < groups; g++) {
            const int from = g * GROUP, to = from + GROUP < S ? from + GROUP : S;
            if (first[from] == first[to]) continue;
            float rows[ROWS][D], top[ROWS] = {0}, shared[ROWS];
            queries(rows, q + (size_t)h * K * D, from, S, scale);
            for (int s = from; s < to; s++)
                for (int p = 0, r = (s - from) * P; p < P; p++, r++) {
                    top[r] = -1e30f;
                    for (int n = first[s]; n < first[s + 1]; n++)
                        top[r] = fmaxf(top[r], tops[((size_t)order[n] * H + h) * P + p]);
                }
            memcpy(shared, top, sizeof top);
            /* All tokens with the largest of their state's tops, then each of the others: order[next], of state `states`. */
            int states = from, next = first[from] - 1;
            for (int alone = 0; alone == 0 || next < first[to]; alone = 1) {
                scores(w, nullptr, rows, keys, K);
                exponentials(w, top, K);
                for (int s = states; s < (alone ? states + 1 : to); s++) {
                    const int row = (s - from) * P;
                    for (int n = first[s]; n < first[s + 1]; n++) {
                        const size_t at = ((size_t)order[n] * H + h) * P, mine = (size_t)(n - first[s]) * P;
                        if ((alone && n != next) || memcmp(tops + at, top + row, P * sizeof(float))) { /* not now */
                            memset(grads + mine * D, 0, P * D * sizeof(float)), memset(ones + mine, 0, P * sizeof(float));
                            continue;
                        }
                        auto scaled = [&](int p) { /* the gradient of the sums, its product with the output */
                            const feat a = (1 / totals[at + p]) * load<feat>(grad + (at + p) * D);
                            store(grads + (mine + p) * D, a);
                            return a * load<feat>(out + (at + p) * D);
                        };
                        if (P % 8)
                            for (int p = 0; p < P; p++) ones[mine + p] = -sum(scaled(p));
                        else
                            for (int p = 0; p < P; p += 8) {
                                eight x[8];
                                for (int r = 0; r < 8; r++) x[r] = fold(scaled(p + r));
                                store(ones + mine + p, -1.f * sums(x));
                            }
                    }
                    feat dmine[P];
                    for (int p = 0; p < P; p++) dmine[p] = zero<feat>();
                    for (int j = 0; j < S; j++) {
                        const int begin = start[(size_t)s * S + j], end = start[(size_t)s * S + j + 1];
                        if (begin == end) continue;
                        /* What the tokens of state s that see j send back: to its sums and to their weights' own sums. */
                        float x[P][D], one[P] = {0}, ds[P][P]; /* ds[p][i] of pseudo-query p and pseudo-key i */
                        for (int p = 0; p < P; p += STEP) {
                            feat a[STEP];
                            for (int r = 0; r < STEP; r++) a[r] = zero<feat>();
                            for (int n = begin; n < end; n++)
                                for (int r = 0; r < STEP; r++) a[r] += load<feat>(grads + ((size_t)who[n] * P + p + r) * D);
                            for (int r = 0; r < STEP; r++) store(x[p + r], a[r]);
                        }
                        for (int n = begin; n < end; n++)
                            plus(one, ones + (size_t)who[n] * P);
                        const size_t at = ((size_t)h * S + j) * P * D;
#if P % 8 == 0
                        for (int i = 0; i < P; i += 8) {
                            reads packed = values + (size_t)((j * P + i) / BLOCK * D) * BLOCK + (j * P + i) % BLOCK;
                            for (int p = 0; p < P; p += 8) {
                                eight a[8];
                                for (int r = 0; r < 8; r++) a[r] = zero<eight>();
                                for (int d = 0; d < D; d++) {
                                    const eight y = load<eight>(packed + d * BLOCK);
                                    for (int r = 0; r < 8; r++) a[r] += x[p + r][d] * y;
                                }
                                for (int r = 0; r < 8; r++) {
                                    a[r] += all<eight>(one[p + r]);
                                    store(ds[p + r] + i, scale * (a[r] * load<eight>(&weight(w, j, i, row + p + r))));
                                }
                            }
                        }
#else
                        for (int p = 0; p < P; p++)
                            for (int i = 0; i < P; i++)
                                ds[p][i] = (sum(load<feat>(x[p]) * load<feat>(v + at + i * D)) + one[p]) * scale *
                                           weight(w, j, i, row + p);
#endif
                        for (int i = 0; i < P; i += STEP) {
                            feat a[STEP];
                            for (int r = 0; r < STEP; r++) a[r] = zero<feat>();
                            for (int p = 0; p < P; p++) {
                                const feat y = load<feat>(x[p]);
                                for (int r = 0; r < STEP; r++) a[r] += weight(w, j, i + r, row + p) * y;
                            }
                            for (int r = 0; r < STEP; r++) add(dv + at + (i + r) * D, a[r]);
                            for (int r = 0; r < STEP; r++) a[r] = zero<feat>();
                            for (int p = 0; p < P; p++) {
                                const feat y = load<feat>(q + ((size_t)h * K + s * P + p) * D);
                                for (int r = 0; r < STEP; r++) a[r] += ds[p][i + r] * y;
                            }
                            for (int r = 0; r < STEP; r++) add(dk + at + (i + r) * D, a[r]);
                        }
                        for (int p = 0; p < P; p += STEP)
                            for (int i = 0; i < P; i++) {
                                const feat y = load<feat>(k + at + i * D);
                                for (int r = 0; r < STEP; r++) dmine[p + r] += ds[p + r][i] * y;
                            }
                    }
                    for (int p = 0; p < P; p++) add(dq + ((size_t)h * K + s * P + p) * D, dmine[p]);
                }
                for (next++; next < first[to]; next++) {
                    while (next >= first[states + 1]) states++;
                    reads own = tops + ((size_t)order[next] * H + h) * P;
                    memcpy(top + (states - from) * P, own, P * sizeof(float));
                    if (memcmp(own, shared + (states - from) * P, P * sizeof(float))) break;
                }
            }
        }
    }
    free(keys), free(values), free(w), free(grads), free(ones);
}
