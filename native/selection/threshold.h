// The threshold of a soft top-k: where the memberships of all entries sum to k.
#pragma once

#include "core/isa.h"

SOFTLY_DECLARE_WIDE(
    // out[r] = t with sum_i F(y[r, i] - t) = k, for 0 < k < n. The root lies within `margin` of the smallest and the
    // largest entry. `distribution` and `art` as in sorting/network_sort.h. False where there is no memory.
    template <typename T>
    bool threshold(const T* y, T* out, int64_t rows, int64_t n, double k, double margin, int distribution, double art,
                   int threads);
)
