#pragma once

#include "state_pairs.hpp"

/* Kept for the backward pass: tops, what scores were shifted by, and totals, what a row is divided by, both (F, H, P).
   The tokens of a state share the largest score of all states. One that sees only far smaller scores is computed again,
   alone, shifted by its own largest. */
extern "C" void pairs_forward(int H, int S, int positions, float scale, ints first, ints order, ints begin, ints length,
                              ints state, ints start, reads q, reads k, reads v, writes tops, writes totals,
                              writes out /* (F, H, P, D) */) {
    const int K = S * P, ids = S / positions, groups = (S + GROUP - 1) / GROUP;
#pragma omp parallel
    {
        float *keys = room((size_t)up(K) * D), *w = room((size_t)up(K) * ROWS);
        float *sums_of = room((size_t)ids * SLOTS * P * D), *ones = room((size_t)ids * SLOTS * P), *line = room(up(K));
        int *local = locals(S, positions);
#pragma omp for
        for (int h = 0; h < H; h++) {
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
                        const int row = (s - from) * P;
                        const int begins = alone ? next : first[s], ends = alone ? next + 1 : first[s + 1];
                        for (int n = begins; n < ends; n++)
                            memcpy(tops + ((size_t)order[n] * H + h) * P, top + row, P * sizeof(float));
                        if (P == 1) { /* a key state is one key */
                            for (int b = 0; b < up(K); b += BLOCK) store(line + b, load<block>(&weight(w, b, row)));
                            for (int n = begins; n < ends; n++) {
                                const int f = order[n], N = length[f];
                                ints seen = state + begin[f];
                                feat a[4];
                                float total[4] = {0};
                                for (int i = 0; i < 4; i++) a[i] = zero<feat>();
                                auto take = [&](int j, int i) {
                                    a[i] += line[seen[j]] * load<feat>(v + ((size_t)h * S + seen[j]) * D);
                                    total[i] += line[seen[j]];
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
                            /* What a key state adds to numerator and denominator: over its pseudo-keys, all tokens. */
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
                                        for (int r = 0; r < STEP; r++)
                                            store(sums_of + ((size_t)mine * P + p + r) * D, a[r]);
                                    }
#if P % 8 == 0
                                    for (int p = 0; p < P; p += 8) {
                                        eight total = zero<eight>(), x[8];
                                        for (int i = 0; i < P; i += 8) {
                                            for (int r = 0; r < 8; r++)
                                                x[r] = load<eight>(&weight(w, j, i, row + p + r));
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
                                const size_t own = ((size_t)f * H + h) * P;
                                writes to_out = out + own * D, to_totals = totals + own;
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
}
