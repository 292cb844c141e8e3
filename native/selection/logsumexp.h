// The logarithm of the sum of exponentials of every row, without an intermediate as large as the rows.
#pragma once

#include "core/isa.h"

SOFTLY_DECLARE(
    // out[r] = log sum_i exp(x[r, i]); infinite where the largest entry is, NaN where any is, for n >= 1.
    template <typename T>
    void logsumexp(const T* x, T* out, int64_t rows, int64_t n, int threads);

    // grad_x[r, i] = grad[r] exp(x[r, i] - out[r]).
    template <typename T>
    void logsumexp_backward(const T* x, const T* out, const T* grad, T* grad_x, int64_t rows, int64_t n, int threads);
)
