/* What stands around attention over states: the collapse of the pseudo-heads and the nonlinearity of the MLP. */

#pragma once

#include "state_vectors.hpp"

/* out[f][h] = sum over m of weights[h][m] x[f][m], vectors of D; x (F, M, D), out (F, H, D). */
extern "C" void collapse_forward(int F, int H, int M, reads weights, reads x, writes out) {
    for (int f = 0; f < F; f++)
        for (int h = 0; h < H; h += 8) {
            const int R = H - h < 8 ? H - h : 8;
            feat a[8];
            for (int r = 0; r < 8; r++) a[r] = zero<feat>();
            if (R == 8)
                for (int m = 0; m < M; m++) {
                    const feat y = load<feat>(x + ((size_t)f * M + m) * D);
                    for (int r = 0; r < 8; r++) a[r] += weights[(size_t)(h + r) * M + m] * y;
                }
            else
                for (int r = 0; r < R; r++)
                    for (int m = 0; m < M; m++) a[r] += weights[(size_t)(h + r) * M + m] * load<feat>(x + ((size_t)f * M + m) * D);
            for (int r = 0; r < R; r++) store(out + ((size_t)f * H + h + r) * D, a[r]);
        }
}

/* Gradients of x and of the weights. Tokens are taken 16 at a time, so that their gradients stay in cache. */
extern "C" void collapse_backward(int F, int H, int M, reads weights, reads x, reads grad, writes dx, writes dweights) {
    float *sums_of = room((size_t)H * M * D);
    memset(sums_of, 0, (size_t)H * M * D * sizeof(float));
    for (int from = 0; from < F; from += 16) {
        const int to = from + 16 < F ? from + 16 : F;
        for (int m = 0; m < M; m++)
            for (int h = 0; h < H; h += 8) {
                const int R = H - h < 8 ? H - h : 8;
                feat a[8];
                float c[8] = {0};
                for (int r = 0; r < R; r++) a[r] = load<feat>(sums_of + ((size_t)(h + r) * M + m) * D), c[r] = weights[(size_t)(h + r) * M + m];
                for (int f = from; f < to; f++) {
                    reads g = grad + ((size_t)f * H + h) * D;
                    const feat y = load<feat>(x + ((size_t)f * M + m) * D);
                    feat d = h ? load<feat>(dx + ((size_t)f * M + m) * D) : zero<feat>();
                    if (R == 8)
                        for (int r = 0; r < 8; r++) {
                            const feat z = load<feat>(g + r * D);
                            a[r] += y * z, d += c[r] * z;
                        }
                    else
                        for (int r = 0; r < R; r++) a[r] += y * load<feat>(g + r * D), d += c[r] * load<feat>(g + r * D);
                    store(dx + ((size_t)f * M + m) * D, d);
                }
                for (int r = 0; r < R; r++) store(sums_of + ((size_t)(h + r) * M + m) * D, a[r]);
            }
    }
    for (int i = 0; i < H * M; i++) dweights[i] = sum(load<feat>(sums_of + (size_t)i * D));
    free(sums_of);
}

/* The normal distribution function, by a rational approximation of erf to float32 rounding (that of Eigen). */
static inline block normal(const block &x) {
    typedef block T;
    block c;
    EACH {
        typename T::lanes y = x.x[i] * 0.70710678f;
        y = y > 3.8325069f ? 3.8325069f - typename T::lanes{} : y;
        y = y < -3.8325069f ? -3.8325069f - typename T::lanes{} : y;
        const typename T::lanes s = y * y;
        typename T::lanes p = s * -2.72614225801306e-10f + 2.77068142495902e-08f;
        p = p * s + -2.10102402082508e-06f;
        p = p * s + -5.69250639462346e-05f;
        p = p * s + -7.34990630326855e-04f;
        p = p * s + -2.95459980854025e-03f;
        p = p * s + -1.60960333262415e-02f;
        typename T::lanes q = s * -1.45660718464996e-05f + -2.13374055278905e-04f;
        q = q * s + -1.68282697438203e-03f;
        q = q * s + -7.37332916720468e-03f;
        q = q * s + -1.42647390514189e-02f;
        c.x[i] = 0.5f + 0.5f * (y * p / q);
    }
    return c;
}

/* out[f] = sum over k of GELU(x[f][k]) u[k]; x (F, K), K a multiple of 16. */
extern "C" void gelu_dot_forward(int F, int K, reads x, reads u, writes out) {
    for (int f = 0; f < F; f++) {
        block a = zero<block>();
        for (int k = 0; k < K; k += BLOCK) {
            const block y = load<block>(x + (size_t)f * K + k);
            a += y * normal(y) * load<block>(u + k);
        }
        out[f] = sum(a);
    }
}

/* Gradients of x and u; that of u must come zeroed. */
extern "C" void gelu_dot_backward(int F, int K, reads x, reads u, reads grad, writes dx, writes du) {
    for (int f = 0; f < F; f++)
        for (int k = 0; k < K; k += BLOCK) {
            const block y = load<block>(x + (size_t)f * K + k), n = normal(y);
            add(du + k, grad[f] * (y * n));
            const block density = 0.39894228f * exponential(-0.5f * (y * y));
            store(dx + (size_t)f * K + k, grad[f] * (load<block>(u + k) * (n + y * density)));
        }
}
