#include "selection/logsumexp.h"

#include <cmath>
#include <cstring>

#include "core/parallel.h"
#include "core/simd.h"

namespace softly::SOFTLY_ISA {
namespace {

// Calls f(begin, vector) on all of x, whose last vector is filled up.
template <typename T, typename F>
inline void vectors(const T* x, int64_t n, T fill, F&& f) {
    constexpr int64_t width = Simd<T>::width;
    int64_t i = 0;
    for (; i + width <= n; i += width) f(i, Simd<T>::load(x + i));
    if (i == n) return;
    auto last = Simd<T>::set(fill);
    std::memcpy(&last, x + i, (n - i) * sizeof(T));
    f(i, last);
}

template <typename T>
T logsumexp_of(const T* x, int64_t n) {
    using S = Simd<T>;
    using V = typename S::V;
    constexpr T lowest = -static_cast<T>(HUGE_VAL);
    auto best = S::set(lowest);
    vectors(x, n, lowest, [&](int64_t, V v) { best = S::max(v, best); });
    T largest = best[0];
    for (int lane = 1; lane < S::width; ++lane) largest = best[lane] > largest ? best[lane] : largest;
    if (std::isinf(largest)) {
        for (int64_t i = 0; i < n; ++i) {
            if (std::isnan(x[i])) return x[i];
        }
        return largest;
    }
    auto total = S::zero();
    vectors(x, n, lowest, [&](int64_t, V v) { total += S::exp(v - largest); });
    T sum = 0;
    for (int lane = 0; lane < S::width; ++lane) sum += total[lane];
    return largest + std::log(sum);
}

}  // namespace

template <typename T>
void logsumexp(const T* x, T* out, int64_t rows, int64_t n, int threads) {
    parallel_for(rows, 1 + 16384 / n, threads, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) out[r] = logsumexp_of(x + r * n, n);
    });
}

template <typename T>
void logsumexp_backward(const T* x, const T* out, const T* grad, T* grad_x, int64_t rows, int64_t n, int threads) {
    parallel_for(rows, 1 + 16384 / n, threads, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            T* to = grad_x + r * n;
            vectors(x + r * n, n, T(0), [&](int64_t i, typename Simd<T>::V v) {
                const auto share = grad[r] * Simd<T>::exp(v - out[r]);
                if (i + Simd<T>::width <= n) return Simd<T>::store(to + i, share);
                std::memcpy(to + i, &share, (n - i) * sizeof(T));
            });
        }
    });
}

template void logsumexp(const float*, float*, int64_t, int64_t, int);
template void logsumexp(const double*, double*, int64_t, int64_t, int);
template void logsumexp_backward(const float*, const float*, const float*, float*, int64_t, int64_t, int);
template void logsumexp_backward(const double*, const double*, const double*, double*, int64_t, int64_t, int);

}  // namespace softly::SOFTLY_ISA
