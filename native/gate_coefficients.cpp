// The softmax of `width` gates at once, one in each lane: no sums across lanes, and sixteen exponentials side by side.
#include "gate_coefficients.h"

#include "parallel.h"
#include "simd.h"

namespace softly::SOFTLY_ISA {
namespace {

// exp(x) for x <= 0. Below -87 it is exp(-87), which beside a 1 is nothing, and needs no care for numbers below the
// normal range.
template <typename T>
inline typename Simd<T>::V exp_nonpositive(typename Simd<T>::V x) {
    using S = Simd<T>;
    using F = Format<T>;
    x = x < T(-87) ? S::set(T(-87)) : x;
    const auto shifted = x * T(1.4426950408889634074) + F::round;
    const auto k = shifted - F::round;
    const auto r = (x - k * F::ln2_high) - k * F::ln2_low;
    return (1 + (r + r * r * S::polynomial(r, F::exp))) * S::power_of_two(S::integer(shifted));
}

// The softmax of `width` gates at once: vector i holds what gate number i has in each, and `scale` makes it sum to 1.
template <typename T>
struct Softmax {
    using S = Simd<T>;
    using V = typename S::V;
    static constexpr int width = S::width;
    V p[16], scale;

    explicit Softmax(const T* weights) {
#pragma GCC unroll 16
        for (int part = 0; part < 16; part += width) {
            V square[width];
#pragma GCC unroll 8
            for (int k = 0; k < width; ++k) square[k] = S::load(weights + 16 * k + part);
            S::transpose(square);
#pragma GCC unroll 8
            for (int k = 0; k < width; ++k) p[part + k] = square[k];
        }
        V most = p[0];
        for (int i = 1; i < 16; ++i) most = S::max(p[i], most);
        V total = S::zero();
        for (int i = 0; i < 16; ++i) {
            p[i] = exp_nonpositive<T>(p[i] - most);
            total += p[i];
        }
        scale = 1 / total;
    }

    // The probability that the mixture is true where the bit of the gate's number is set.
    V truth(int bit) const {
        V sum = S::zero();
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            if (i >> bit & 1) sum += p[i];
        }
        return sum * scale;
    }
};

// Calls body(first gate, how many) for pieces of at most `width`; all but the last are full.
template <typename T, typename F>
void pieces(int64_t n, int threads, const F& body) {
    constexpr int64_t width = Simd<T>::width;
    parallel_for((n + width - 1) / width, 512, threads, [&](int64_t begin, int64_t end) {
        for (int64_t piece = begin; piece < end; ++piece) {
            const int64_t at = piece * width;
            body(at, n - at < width ? n - at : width);
        }
    });
}

}  // namespace

template <typename T>
void gate_coefficients(const T* weights, T* coefficients, int64_t n, int threads) {
    using S = Simd<T>;
    using V = typename S::V;
    pieces<T>(n, threads, [&](int64_t at, int64_t count) {
        T padded[16 * S::width] = {};
        const T* from = weights + 16 * at;
        if (count < S::width) from = static_cast<T*>(__builtin_memcpy(padded, from, 16 * count * sizeof(T)));
        const Softmax<T> softmax(from);
        const V q00 = softmax.truth(3), q01 = softmax.truth(2), q10 = softmax.truth(1), q11 = softmax.truth(0);
        const V c[4] = {q00, q10 - q00, q01 - q00, (q11 - q10) - (q01 - q00)};
        T rows[4][S::width];
        for (int i = 0; i < 4; ++i) S::store(rows[i], c[i]);
        for (int64_t k = 0; k < count; ++k) {
            for (int i = 0; i < 4; ++i) coefficients[4 * (at + k) + i] = rows[i][k];
        }
    });
}

// With the gradient h of the truth table's four probabilities, gate i has the gradient sum of h over its bits, and the
// softmax takes off the mean.
template <typename T>
void gate_coefficients_backward(const T* weights, const T* grad, T* grad_weights, int64_t n, int threads) {
    using S = Simd<T>;
    using V = typename S::V;
    pieces<T>(n, threads, [&](int64_t at, int64_t count) {
        T padded[16 * S::width] = {};
        const T* from = weights + 16 * at;
        if (count < S::width) from = static_cast<T*>(__builtin_memcpy(padded, from, 16 * count * sizeof(T)));
        const Softmax<T> softmax(from);
        T rows[4][S::width] = {};
        for (int64_t k = 0; k < count; ++k) {
            for (int i = 0; i < 4; ++i) rows[i][k] = grad[4 * (at + k) + i];
        }
        V g[4];
        for (int i = 0; i < 4; ++i) g[i] = S::load(rows[i]);
        const V h[4] = {g[3], g[1] - g[3], g[2] - g[3], (g[0] - g[1]) - (g[2] - g[3])};  // by bit: 11, 10, 01, 00
        V gate[16] = {};
#pragma GCC unroll 16
        for (int i = 1; i < 16; ++i) {
            const int lowest = __builtin_ctz(i);
            gate[i] = gate[i & (i - 1)] + h[lowest];
        }
        V mean = S::zero();
        for (int i = 0; i < 16; ++i) mean += softmax.p[i] * gate[i];
        mean *= softmax.scale;
        for (int part = 0; part < 16; part += S::width) {
            V square[S::width];
            for (int k = 0; k < S::width; ++k) square[k] = softmax.p[part + k] * softmax.scale * (gate[part + k] - mean);
            S::transpose(square);
            for (int64_t k = 0; k < count; ++k) S::store(grad_weights + 16 * (at + k) + part, square[k]);
        }
    });
}

template void gate_coefficients(const float*, float*, int64_t, int);
template void gate_coefficients(const double*, double*, int64_t, int);
template void gate_coefficients_backward(const float*, const float*, float*, int64_t, int);
template void gate_coefficients_backward(const double*, const double*, double*, int64_t, int);

}  // namespace softly::SOFTLY_ISA
