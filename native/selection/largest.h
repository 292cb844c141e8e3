// The indices of the few largest entries of every row.
#pragma once

#include "core/isa.h"

SOFTLY_DECLARE(
    // indices[r, 0 .. m): the m largest of x[r, 0 .. n), from the largest, for 1 <= m <= min(n, 64). NaN counts as
    // infinite; of equal entries the first comes first.
    template <typename T>
    void largest(const T* x, int64_t* indices, int64_t rows, int64_t n, int64_t m, int threads);
)
