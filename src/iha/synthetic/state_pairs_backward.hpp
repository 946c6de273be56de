#pragma once

#include "state_pairs.hpp"

/* Gradients of q, k and v, which must come zeroed. */
extern "C" void pairs_backward(int H, int S, int most, float scale, ints first, ints order, ints start, ints who,
                               reads q, reads k, reads v, reads tops, reads totals, reads out, reads grad, writes dq,
                               writes dk, writes dv) {
    const int K = S * P, groups = (S + GROUP - 1) / GROUP;
#pragma omp parallel
    {
        float *keys = room((size_t)up(K) * D), *values = room((size_t)up(K) * D), *w = room((size_t)up(K) * ROWS);
        float *grads = room((size_t)most * P * D), *ones = room((size_t)most * P);
#pragma omp for
        for (int h = 0; h < H; h++) {
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
                /* All with the largest of their state's tops, then each of the others: order[next], of state `states`. */
                int states = from, next = first[from] - 1;
                for (int alone = 0; alone == 0 || next < first[to]; alone = 1) {
                    scores(w, nullptr, rows, keys, K);
                    exponentials(w, top, K);
                    for (int s = states; s < (alone ? states + 1 : to); s++) {
                        const int row = (s - from) * P;
                        for (int n = first[s]; n < first[s + 1]; n++) {
                            const size_t at = ((size_t)order[n] * H + h) * P, mine = (size_t)(n - first[s]) * P;
                            if ((alone && n != next) || memcmp(tops + at, top + row, P * sizeof(float))) { /* not now */
                                memset(grads + mine * D, 0, P * D * sizeof(float));
                                memset(ones + mine, 0, P * sizeof(float));
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
                            /* What the tokens of s that see j send back: to its sums and to their weights' own sums. */
                            float x[P][D], one[P] = {0}, ds[P][P]; /* ds[p][i] of pseudo-query p and pseudo-key i */
                            for (int p = 0; p < P; p += STEP) {
                                feat a[STEP];
                                for (int r = 0; r < STEP; r++) a[r] = zero<feat>();
                                for (int n = begin; n < end; n++)
                                    for (int r = 0; r < STEP; r++)
                                        a[r] += load<feat>(grads + ((size_t)who[n] * P + p + r) * D);
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
                                        const eight own = load<eight>(&weight(w, j, i, row + p + r));
                                        store(ds[p + r] + i, scale * ((a[r] + all<eight>(one[p + r])) * own));
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
}
