// Relaxed comparator networks: sorted values, permutation matrices, and their gradients.
//
// A comparator (i, j) sees d = y_j - y_i, of y = steepness * x at first, and swaps with weight w = F(-d):
//
//     y_i <- y_i + d w,   y_j <- y_j - d w,   rows of P:  R_i <- R_i + w (R_j - R_i),   R_j <- R_j - w (R_j - R_i).
//
// The values are y / steepness in the end.
//
// `distribution` is a Distribution, `art` the strength of the activation replacement trick, negative for none. Inputs
// are finite or NaN, which spreads to what it reaches. x is (batch, n), contiguous like everything else. Outputs come
// in the order of the plan's outputs. All return false, and nothing useful, if memory runs out.
#pragma once

#include "core/isa.h"
#include "sorting/plan.h"

SOFTLY_DECLARE_WIDE(
    // out: (batch, outputs). slopes: batch * size numbers for the gradient, or null.
    template <typename T>
    bool network_values(const SortingPlan* plan, int distribution, double art, double steepness, const T* x, T* out,
                        T* slopes, int64_t batch, int threads);
    template <typename T>
    bool network_values_backward(const SortingPlan* plan, const T* slopes, const T* grad, T* grad_x, int64_t batch,
                                 int threads);

    // out: (batch, n, n), [rank, input]; needs all wires as outputs. kept: (batch, 3, size) numbers for the gradient,
    // or null.
    template <typename T>
    bool network_matrix(const SortingPlan* plan, int distribution, double art, double steepness, const T* x, T* out,
                        T* kept, int64_t batch, int threads);
    template <typename T>
    bool network_matrix_backward(const SortingPlan* plan, double steepness, const T* kept, const T* grad, T* grad_x,
                                 int64_t batch, int threads);
)
