// Single rows of a network's permutation matrix, and their gradients: as in network_sort.h, without the matrix.
#pragma once

#include "core/isa.h"
#include "sorting/plan.h"

SOFTLY_DECLARE(
    // out: (batch, k, n), rows @ P, for constant rows (k, outputs) that weigh P's rows; null is the identity, of
    // k = outputs.
    template <typename T>
    bool network_rows(const SortingPlan* plan, int distribution, double art, double steepness, const T* x,
                      const T* rows, int64_t k, T* out, T* kept, int64_t batch, int threads);
    template <typename T>
    bool network_rows_backward(const SortingPlan* plan, double steepness, const T* rows, int64_t k, const T* kept,
                               const T* grad, T* grad_x, int64_t batch, int threads);
)
