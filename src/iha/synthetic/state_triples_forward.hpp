#pragma once

#include "state_triples.hpp"

/* Kept for the backward pass: tops, what scores were shifted by, and totals, both (F, H). The tokens of a state share
   the largest score that meets. One that sees only far smaller scores is computed again, alone, shifted by its own
   largest. */
extern "C" void triples_forward(int H, int S, int positions, int F, int window, float scale,
                                ints first, ints order, ints begin, ints length, ints state, ints start, reads q,
                                reads k1, reads k2, reads v1, reads v2, writes tops, writes totals,
                                writes out /* (F, H, D) */) {
    const int W = up(S), blocks = W / BLOCK;
    float *is = room((size_t)F * W);
    char *used = (char *)calloc(F, blocks);
    memset(is, 0, (size_t)F * W * sizeof(float));
    for (int n = 0; n < F; n++) { /* the second keys that a token sees, and the blocks that have any */
        const int f = order[n];
        const sight near(f - begin[f], length[f], window);
        for (int k = near.from; k < near.to; k++) {
            const unsigned c = state[begin[f] + k];
            is[(size_t)n * W + c] = 1, used[(size_t)n * blocks + c / BLOCK] = 1;
        }
    }
#pragma omp parallel
    {
        table t(S, positions, start);
        float *keys = room((size_t)W * D), *weights = room((size_t)t.parts * t.height * W);
        float(*rows)[D] = (float(*)[D])room((size_t)t.height * D);
#pragma omp for
        for (int h = 0; h < H; h++) {
            const size_t head = (size_t)h * S * D;
            pack(keys, k2 + head, S);
            for (int s = 0; s < S; s++) {
                if (first[s] == first[s + 1]) continue;
                t.of(s);
                const feat mine = scale * load<feat>(q + head + (size_t)s * D);
                auto largest_seen = [&](int f) {
                    const sight near(f - begin[f], length[f], window);
                    float top = -1e30f;
                    for (int j = 0; j < length[f]; j++) {
                        reads line = weights + ((size_t)j / SLOTS * t.height + t.row[state[begin[f] + j]]) * W;
                        for (int k = near.from; k < near.to; k++) top = fmaxf(top, line[state[begin[f] + k]]);
                    }
                    return top;
                };
                /* All tokens of the state, order[from] ... order[to - 1], then those that must be alone. */
                int next = first[s];
                for (int from = first[s], to = first[s + 1], alone = 0; from < to; alone = 1) {
                    block best = all<block>(-1e30f);
                    for (int part = 0; part < t.parts; part++) {
                        writes w = weights + (size_t)part * t.height * W;
                        t.scores(w, rows, part, mine, k1 + head, keys);
                        for (int i = 0; i < t.counts[part] * W; i += BLOCK) best = larger(best, load<block>(w + i));
                    }
                    const float top = alone ? largest_seen(order[from]) : largest(best);
                    for (int n = from; n < to; n++) {
                        const size_t at = (size_t)order[n] * H + h;
                        tops[at] = top, totals[at] = 0;
                        store(out + at * D, zero<feat>());
                    }
                    for (int part = 0, slot = 0; part < t.parts; part++, slot += SLOTS) {
                        writes w = weights + (size_t)part * t.height * W;
                        t.exponentials(w, part, top);
                        for (int n = from; n < to; n++) {
                            const int f = order[n], N = length[f], R = N - slot < SLOTS ? N - slot : SLOTS;
                            if (R <= 0) continue;
                            const sight near(f - begin[f], N, window);
                            ints seen = state + begin[f];
                            const float *lines[SLOTS];
                            for (int r = 0; r < R; r++) lines[r] = w + (size_t)t.row[seen[slot + r]] * W;
                            feat sums = load<feat>(out + ((size_t)f * H + h) * D);
                            block total = zero<block>();
                            by_rows(R, [&](auto rows_here, int r) {
                                const int count = decltype(rows_here)::value;
                                feat a[count];
                                exchange<count, false>(lines + r, near.to - near.from, seen + near.from, v2 + head,
                                                       nullptr, a, nullptr);
                                for (int i = 0; i < count; i++)
                                    sums += a[i] * load<feat>(v1 + head + (size_t)seen[slot + r + i] * D);
                                /* The sum of the same weights: of whole columns; those in the example count. */
                                for (int b = 0; b < blocks; b++) {
                                    if (!used[(size_t)n * blocks + b]) continue;
                                    block column = load<block>(lines[r] + b * BLOCK);
                                    for (int i = 1; i < count; i++) column += load<block>(lines[r + i] + b * BLOCK);
                                    total += column * load<block>(is + (size_t)n * W + b * BLOCK);
                                }
                            });
                            store(out + ((size_t)f * H + h) * D, sums);
                            totals[(size_t)f * H + h] += sum(total);
                        }
                    }
                    while (next < first[s + 1] && totals[(size_t)order[next] * H + h] > TINY) next++;
                    from = next++, to = from < first[s + 1] ? from + 1 : from;
                }
                for (int n = first[s]; n < first[s + 1]; n++) {
                    const size_t at = (size_t)order[n] * H + h;
                    store(out + at * D, (1 / totals[at]) * load<feat>(out + at * D));
                }
            }
        }
        free(keys), free(weights), free(rows);
    }
    free(is), free(used);
}
