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

/* Kept for the backward pass: tops, what scores were shifted by, and totals, both (F, H). The tokens of a state share
   the largest score that meets. One that sees only far smaller scores is computed again, alone, shifted by its own
   largest. */
extern "C" void triples_forward(int from_head, int to_head, int H, int S, int positions, int F, int window, float scale,
                                ints first, ints order, ints begin, ints length, ints state, ints start, reads q,
                                reads k1, reads k2, reads v1, reads v2, writes tops, writes totals,
                                writes out /* (F, H, D) */) {
    table t(S, positions, start);
    const int W = t.W, blocks = W / BLOCK;
    float *keys = room((size_t)W * D), *weights = room((size_t)t.parts * t.height * W), *is = room((size_t)F * W);
    float(*rows)[D] = (float(*)[D])room((size_t)t.height * D);
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
    for (int h = from_head; h < to_head; h++) {
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
                            exchange<count, false>(lines + r, near.to - near.from, seen + near.from, v2 + head, nullptr, a, nullptr);
                            for (int i = 0; i < count; i++) sums += a[i] * load<feat>(v1 + head + (size_t)seen[slot + r + i] * D);
                            /* The sum of the same weights: of whole columns, of which those in the example count. */
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
    free(keys), free(weights), free(is), free(rows), free(used);
}

/* Gradients of q, k1, k2, v1 and v2, which must come zeroed. */
extern "C" void triples_backward(int from_head, int to_head, int H, int S, int positions, int F, int window, int most,
                                 float scale, ints first, ints order, ints begin, ints length, ints state, ints start,
                                 reads q, reads k1, reads k2, reads v1, reads v2, reads tops, reads totals, reads out,
                                 reads grad, writes dq, writes dk1, writes dk2, writes dv1, writes dv2) {
    table t(S, positions, start);
    const int W = t.W, L = up(positions);
    float *keys = room((size_t)W * D), *w = room((size_t)t.height * W), *ds = room((size_t)t.height * W);
    float *packed = room((size_t)most * L * D), *is = room((size_t)F * t.ids * L), *values = room((size_t)t.ids * L * D);
    float *lines = room((size_t)SLOTS * L), *grads = room((size_t)most * D), *ones = room(most);
    float(*rows)[D] = (float(*)[D])room((size_t)t.height * D);
    memset(is, 0, (size_t)F * t.ids * L * sizeof(float));
    for (int n = 0; n < F; n++) {
        const int f = order[n];
        const sight near(f - begin[f], length[f], window);
        for (int k = near.from; k < near.to; k++) is[((size_t)n * t.ids + state[begin[f] + k] / positions) * L + k] = 1;
    }
    for (int h = from_head; h < to_head; h++) {
        const size_t head = (size_t)h * S * D;
        pack(keys, k2 + head, S);
        for (int id = 0; id < t.ids; id++)
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
                    for (int id = 0; id < t.ids; id++) {
                        const block mask = load<block>(is + ((size_t)n * t.ids + id) * L + b);
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
                        reads mask = is + (size_t)n * t.ids * L, second = packed + (size_t)i * L * D;
                        const bool by_two = t.ids == 2 && up(N) <= positions;
                        if (!by_two) {
                            products(lines, BLOCK, L, mixed, R, second, up(N) / BLOCK);
                            for (int r = 0; r < R; r++)
                                for (int id = 0; id < t.ids; id++)
                                    for (int k = 0; k < N; k++) to[r][id * positions + k] += mask[id * L + k] * (lines[r * L + k] + ones[i]);
                        }
                        by_rows(R, [&](auto rows_here, int r) {
                            const int count = decltype(rows_here)::value, B = WIDEST / 8;
                            feat a[count];
                            exchange<count, true>(from + r, near.to - near.from, seen + near.from, v2 + head, mixed + r, a, dv2 + head);
                            for (int j = 0; j < count; j++) add(dv1 + head + (size_t)seen[slot + r + j] * D, g * a[j]);
                            const int left = near.from - near.from % (B * BLOCK);
                            float *onto[count];
                            for (int j = 0; j < count; j++) onto[j] = to[r + j] + left;
                            for (int b = left; by_two && b < near.to; b += B * BLOCK) {
                                reads x = second + (size_t)b * D;
                                if (b + (B - 1) * BLOCK < near.to) spread<count, B>(onto, positions, mask + b, L, ones[i], mixed + r, x);
                                else spread<count, 1>(onto, positions, mask + b, L, ones[i], mixed + r, x);
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
    free(keys), free(w), free(ds), free(packed), free(is), free(values), free(lines), free(grads), free(ones), free(rows);
}
