// Reductions over Hamacher T-norms and T-conorms: the probabilistic (p = 1) and the Einstein one (p = 2) among them.
// And the Euclidean norm, of which those of Yager's are made at p = 2.
#pragma once

#include "core/isa.h"

SOFTLY_DECLARE(
    // out[r] = T(x[r, 0], ..., x[r, n - 1]), or with `dual` the T-conorm, 1 - T(1 - x). Whether all entries are in
    // [0, 1], or outside by no more than their rounding.
    template <typename T>
    bool hamacher(const T* x, T* out, int64_t rows, int64_t n, double p, bool dual, int threads);

    // grad_x[r, i] = grad_out[r] * d out[r] / d x[r, i]
    template <typename T>
    void hamacher_backward(const T* x, const T* grad_out, T* grad_x, int64_t rows, int64_t n, double p, bool dual,
                           int threads);

    // out[r] = sqrt(x[r, 0]^2 + ... + x[r, n - 1]^2). Whether all entries are in [0, 1], as above.
    template <typename T>
    bool euclidean(const T* x, T* out, int64_t rows, int64_t n, int threads);
)
