// Steps with the Fisher information of a batch of gradients.
#pragma once

#include "core/isa.h"

SOFTLY_DECLARE(
    // ends[b, m] = y[b, m] - (C + lambda)^-1 g[b, m], with C the mean outer product of the rows of g, in double
    // precision. *lambda is given, or where `automatic` it becomes a tenth of the mean eigenvalue of C, 1 where that is
    // 0. Returns 0, or 1 where C + lambda is not positive definite beyond rounding, or 2 where C is not finite or there
    // is no memory; `ends` is not written then.
    template <typename T>
    int fisher_step(const T* y, const T* g, T* ends, double* lambda, bool automatic, int64_t batch, int64_t m);
)
