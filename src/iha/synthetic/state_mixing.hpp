/* What stands around attention over states: the collapse of the pseudo-heads and the nonlinearity of the MLP. */

#pragma once

#include "state_vectors.hpp"

/* out[f][h] = sum over m of weights[h][m] x[f][m], vectors of D; x (F, M, D), out (F, H, D). */
extern "C" void collapse_forward(int F, int H, int M, reads weights, reads x, writes out) {
    for (int f = 0; f < F; f++)
        by_rows(H, [=](auto heads, int h) {
            const int R = decltype(heads)::value;
            feat a[R];
            for (int r = 0; r < R; r++) a[r] = zero<feat>();
            for (int m = 0; m < M; m++) {
                const feat y = load<feat>(x + ((size_t)f * M + m) * D);
                for (int r = 0; r < R; r++) a[r] += weights[(size_t)(h + r) * M + m] * y;
            }
            for (int r = 0; r < R; r++) store(out + ((size_t)f * H + h + r) * D, a[r]);
        });
}

/* Gradients of x and of the weights. */
extern "C" void collapse_backward(int F, int H, int M, reads weights, reads x, reads grad, writes dx, writes dweights) {
    float *sums_of = room((size_t)H * M * D);
    memset(sums_of, 0, (size_t)H * M * D * sizeof(float));
    auto through = [=](auto heads, int f, int h) {
        const int R = decltype(heads)::value;
        feat g[R];
        for (int r = 0; r < R; r++) g[r] = load<feat>(grad + ((size_t)f * H + h + r) * D);
        for (int m = 0; m < M; m++) {
            const feat y = load<feat>(x + ((size_t)f * M + m) * D);
            feat d = h ? load<feat>(dx + ((size_t)f * M + m) * D) : zero<feat>();
            for (int r = 0; r < R; r++) {
                d += weights[(size_t)(h + r) * M + m] * g[r];
                add(sums_of + ((size_t)m * H + h + r) * D, y * g[r]);
            }
            store(dx + ((size_t)f * M + m) * D, d);
        }
    };
    for (int f = 0; f < F; f++) by_rows(H, [=](auto R, int h) { through(R, f, h); });
    for (int h = 0; h < H; h++)
        for (int m = 0; m < M; m++) dweights[(size_t)h * M + m] = sum(load<feat>(sums_of + ((size_t)m * H + h) * D));
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
