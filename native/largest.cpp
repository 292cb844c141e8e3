// One pass with a sorted list of the best so far: soon hardly any entry beats the last of them, and whole vectors are
// passed over with one comparison.
#include "largest.h"

#include <cmath>

#include "parallel.h"
#include "simd.h"

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
    for (; i + 4 * S::width <= n; i += 4 * S::width) {
        const auto last = S::set(values[m - 1]);
        auto known = S::load(x + i) <= last;  // false for NaN
        for (int part = 1; part < 4; ++part) known &= S::load(x + i + part * S::width) <= last;
        typedef int64_t Words __attribute__((vector_size(vector_bytes)));
        const Words words = (Words)known;
        int64_t all = -1;
        for (int word = 0; word < vector_bytes / 8; ++word) all &= words[word];
        if (all == -1) continue;
        for (int entry = 0; entry < 4 * S::width; ++entry) {
            if (!(x[i + entry] <= values[m - 1])) insert(i + entry, m + 1);
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
