// One pass with a sorted list of the best so far: soon hardly any entry beats the last of them, and whole vectors are
// passed over with one comparison.
#include "selection/largest.h"

#include <cmath>

#include "core/parallel.h"
#include "core/simd.h"

namespace softly::SOFTLY_ISA {
namespace {

constexpr int64_t kMost = 64;

template <typename T>
void best_of(const T* x, int64_t* indices, int64_t n, int64_t m) {
    using S = Simd<T>;
    T values[kMost];
    // Puts an entry into the first `count` of the list, whose last one falls out if `count` is m + 1.
    const auto insert = [&](int64_t index, int64_t count) {
        const T value = x[index] == x[index] ? x[index] : static_cast<T>(HUGE_VAL);
        int64_t place = count - 1;
        if (place == m) {
            if (!(value > values[--place])) return;
        }
        for (; place > 0 && value > values[place - 1]; --place) {
            values[place] = values[place - 1];
            indices[place] = indices[place - 1];
        }
        values[place] = value;
        indices[place] = index;
    };
    int64_t i = 0;
    for (; i < m; ++i) insert(i, i + 1);
    for (; i + S::width <= n; i += S::width) {
        const auto known = S::load(x + i) <= S::set(values[m - 1]);  // false for NaN
        for (uint32_t better = S::bits(~known); better != 0; better &= better - 1) {
            insert(i + __builtin_ctz(better), m + 1);
        }
    }
    for (; i < n; ++i) insert(i, m + 1);
}

}  // namespace

template <typename T>
void largest(const T* x, int64_t* indices, int64_t rows, int64_t n, int64_t m, int threads) {
    parallel_for(rows, 1 + 16384 / n, threads, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) best_of(x + r * n, indices + r * m, n, m);
    });
}

template void largest(const float*, int64_t*, int64_t, int64_t, int64_t, int);
template void largest(const double*, int64_t*, int64_t, int64_t, int64_t, int);

}  // namespace softly::SOFTLY_ISA
