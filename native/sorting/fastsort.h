// Projections onto permutahedra, which are isotonic regressions: soft sorting and ranking in O(n log n).
#pragma once

#include "core/isa.h"

SOFTLY_DECLARE(
    // out[r] is the projection of z onto the permutahedron of w, for z = pairs[r, 0] and w = pairs[r, 1]:
    // Euclidean, or with `kl` the logarithm of the Kullback-Leibler projection of exp(z) onto the permutahedron
    // of exp(w). kept[r] holds what the gradient needs: the order of z, the order of w, and in ascending order
    // at the first entry of each pooled block its length, 0 elsewhere. Returns false if there was no memory.
    template <typename T>
    bool permutahedron(const T* pairs, T* out, int32_t* kept, int64_t rows, int64_t n, bool kl, int threads);

    // grad_pairs[r, h, i] = sum_j grad_out[r, j] * d out[r, j] / d pairs[r, h, i]
    template <typename T>
    bool permutahedron_backward(const T* pairs, const T* grad_out, const int32_t* kept, T* grad_pairs, int64_t rows,
                                int64_t n, bool kl, int threads);
)
