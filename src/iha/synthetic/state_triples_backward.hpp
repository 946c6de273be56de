#pragma once

#include "state_triples.hpp"

/* Gradients of q, k1, k2, v1 and v2, which must come zeroed. */
extern "C" void triples_backward(int H, int S, int positions, int F, int window, int most, float scale, ints first,
                                 ints order, ints begin, ints length, ints state, ints start, reads q, reads k1,
                                 reads k2, reads v1, reads v2, reads tops, reads totals, reads out, reads grad,
                                 writes dq, writes dk1, writes dk2, writes dv1, writes dv2) {
    const int W = up(S), L = up(positions), ids = S / positions;
    float *is = room((size_t)F * ids * L);
    memset(is, 0, (size_t)F * ids * L * sizeof(float));
    for (int n = 0; n < F; n++) {
        const int f = order[n];
        const sight near(f - begin[f], length[f], window);
        for (int k = near.from; k < near.to; k++) is[((size_t)n * ids + state[begin[f] + k] / positions) * L + k] = 1;
    }
#pragma omp parallel
    {
        table t(S, positions, start);
        float *keys = room((size_t)W * D), *w = room((size_t)t.height * W), *ds = room((size_t)t.height * W);
        float *packed = room((size_t)most * L * D), *values = room((size_t)ids * L * D);
        float *lines = room((size_t)SLOTS * L), *grads = room((size_t)most * D), *ones = room(most);
        float(*rows)[D] = (float(*)[D])room((size_t)t.height * D);
#pragma omp for
        for (int h = 0; h < H; h++) {
            const size_t head = (size_t)h * S * D;
            pack(keys, k2 + head, S);
            for (int id = 0; id < ids; id++)
                pack(values + (size_t)id * L * D, v2 + head + (size_t)id * positions * D, positions);
            for (int s = 0; s < S; s++) {
                if (first[s] == first[s + 1]) continue;
                t.of(s);
                for (int n = first[s], i = 0; n < first[s + 1]; n++, i++) {
                    const size_t f = order[n];
                    const feat g = (1 / totals[f * H + h]) * load<feat>(grad + (f * H + h) * D);
                    store(grads + (size_t)i * D, g);
                    ones[i] = -sum(g * load<feat>(out + (f * H + h) * D));
                    /* The second values that a token sees, by position. */
                    for (int b = 0; b < up(length[f]); b += BLOCK)
                        for (int id = 0; id < ids; id++) {
                            const block mask = load<block>(is + ((size_t)n * ids + id) * L + b);
                            reads from = values + ((size_t)id * L + b) * D;
                            writes to = packed + ((size_t)i * L + b) * D;
                            if (id == 0)
                                for (int d = 0; d < D * BLOCK; d += BLOCK) store(to + d, mask * load<block>(from + d));
                            else
                                for (int d = 0; d < D * BLOCK; d += BLOCK) add(to + d, mask * load<block>(from + d));
                        }
                }
                const feat mine = scale * load<feat>(q + head + (size_t)s * D);
                feat dmine = zero<feat>();
                /* All tokens of the state with the largest of tops, then each of the others. */
                float top = -1e30f;
                for (int n = first[s]; n < first[s + 1]; n++) top = fmaxf(top, tops[(size_t)order[n] * H + h]);
                const float shared = top;
                int next = first[s];
                for (int begins = first[s], ends = first[s + 1]; begins < ends;) {
                    for (int part = 0, slot = 0; part < t.parts; part++, slot += SLOTS) {
                        t.scores(w, rows, part, mine, k1 + head, keys);
                        t.exponentials(w, part, top);
                        memset(ds, 0, (size_t)t.counts[part] * W * sizeof(float));
                        for (int n = begins, i = begins - first[s]; n < ends; n++, i++) {
                            const int f = order[n], N = length[f], R = N - slot < SLOTS ? N - slot : SLOTS;
                            if (R <= 0 || tops[(size_t)f * H + h] != top) continue;
                            const sight near(f - begin[f], N, window);
                            ints seen = state + begin[f];
                            const feat g = load<feat>(grads + (size_t)i * D);
                            float mixed[SLOTS][D], *to[SLOTS];
                            const float *from[SLOTS];
                            for (int r = 0; r < R; r++) {
                                const size_t at = (size_t)t.row[seen[slot + r]] * W;
                                from[r] = w + at, to[r] = ds + at;
                                store(mixed[r], g * load<feat>(v1 + head + (size_t)seen[slot + r] * D));
                            }
                            reads mask = is + (size_t)n * ids * L, second = packed + (size_t)i * L * D;
                            const bool by_two = ids == 2 && up(N) <= positions;
                            if (!by_two) {
                                products(lines, BLOCK, L, mixed, R, second, up(N) / BLOCK);
                                for (int r = 0; r < R; r++)
                                    for (int id = 0; id < ids; id++)
                                        for (int k = 0; k < N; k++)
                                            to[r][id * positions + k] += mask[id * L + k] * (lines[r * L + k] + ones[i]);
                            }
                            by_rows(R, [&](auto rows_here, int r) {
                                const int count = decltype(rows_here)::value, B = WIDEST / 8;
                                feat a[count];
                                exchange<count, true>(from + r, near.to - near.from, seen + near.from, v2 + head,
                                                      mixed + r, a, dv2 + head);
                                for (int j = 0; j < count; j++)
                                    add(dv1 + head + (size_t)seen[slot + r + j] * D, g * a[j]);
                                const int left = near.from - near.from % (B * BLOCK);
                                float *onto[count];
                                for (int j = 0; j < count; j++) onto[j] = to[r + j] + left;
                                for (int b = left; by_two && b < near.to; b += B * BLOCK) {
                                    reads x = second + (size_t)b * D;
                                    auto columns = b + (B - 1) * BLOCK < near.to ? spread<count, B> : spread<count, 1>;
                                    columns(onto, positions, mask + b, L, ones[i], mixed + r, x);
                                    for (int j = 0; j < count; j++) onto[j] += B * BLOCK;
                                }
                            });
                        }
                        /* Through the scores, which are trilinear in q, k1 and k2. */
                        const int n = t.counts[part];
                        for (int i = 0; i < n * W; i += BLOCK) store(ds + i, load<block>(ds + i) * load<block>(w + i));
                        by_rows(n, [&](auto rows_here, int r) {
                            const int count = decltype(rows_here)::value;
                            const float *from[count];
                            feat a[count];
                            for (int i = 0; i < count; i++) from[i] = ds + (size_t)(r + i) * W;
                            exchange<count, true>(from, t.met, t.columns, k2 + head, rows + r, a, dk2 + head);
                            for (int i = 0; i < count; i++) {
                                const size_t j = head + (size_t)t.states[part * t.height + r + i] * D;
                                dmine += a[i] * load<feat>(k1 + j);
                                add(dk1 + j, a[i] * mine);
                            }
                        });
                    }
                    while (next < first[s + 1] && tops[(size_t)order[next] * H + h] == shared) next++;
                    begins = next++, ends = begins < first[s + 1] ? begins + 1 : begins;
                    if (begins < ends) top = tops[(size_t)order[begins] * H + h];
                }
                add(dq + head + (size_t)s * D, scale * dmine);
            }
        }
        free(keys), free(w), free(ds), free(packed), free(values), free(lines), free(grads), free(ones), free(rows);
    }
    free(is);
}
