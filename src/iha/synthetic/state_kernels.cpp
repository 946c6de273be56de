/* Attention over tokens of few different states (state_attention.py says what and why), forward and backward.

   D, features of a head, and P, pseudo-heads, are given when compiling (-DD=16 -DP=8), so that the inner loops have
   constant lengths and become vector instructions. All arrays are float32 and C-contiguous. OpenMP threads, torch's
   own, share the heads.

   Tokens are sorted by state: those of state s are order[first[s]] ... order[first[s+1] - 1]. The keys of token f are
   the tokens begin[f] ... begin[f] + length[f] - 1 of its own example, in order of position; state[f] is a token's
   state, which is id * (positions) + position. The tokens of state s that see state j are, counted from the first of
   state s, who[start[s * S + j]] ... who[start[s * S + j + 1] - 1]. */

#include "state_vectors.hpp"

#include "state_mixing.hpp"
#include "state_pairs_backward.hpp"
#include "state_pairs_forward.hpp"
#include "state_triples_backward.hpp"
#include "state_triples_forward.hpp"

/* Fills start (S * S + 1) and who (the sum of all lengths). Returns the largest number of tokens of one state. */
extern "C" int meetings(int S, ints first, ints order, ints begin, ints length, ints state, int32_t *start, int32_t *who) {
    int total = 0, most = 0;
    int32_t *next = (int32_t *)malloc(S * sizeof(int32_t));
    for (int s = 0; s < S; s++) {
        memset(next, 0, S * sizeof(int32_t));
        for (int n = first[s]; n < first[s + 1]; n++)
            for (int j = 0; j < length[order[n]]; j++) next[state[begin[order[n]] + j]]++;
        for (int j = 0; j < S; j++) {
            const int count = next[j];
            start[(size_t)s * S + j] = next[j] = total, total += count;
        }
        for (int n = first[s]; n < first[s + 1]; n++)
            for (int j = 0; j < length[order[n]]; j++) who[next[state[begin[order[n]] + j]]++] = n - first[s];
        most = first[s + 1] - first[s] > most ? first[s + 1] - first[s] : most;
    }
    start[(size_t)S * S] = total;
    free(next);
    return most;
}
