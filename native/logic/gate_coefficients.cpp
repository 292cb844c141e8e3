// The softmax of `width` gates at once, one in each lane: no sums across lanes, and sixteen exponentials side by side.
#include "logic/gate_coefficients.h"

#include "core/parallel.h"
#include "core/simd.h"

namespace softly::SOFTLY_ISA {
namespace {

// 2^x for x <= 0. Below -126 it is 2^-126, which beside a 1 is nothing, and needs no care for numbers below the normal
// range.
template <typename T>
inline typename Simd<T>::V power_of_two(typename Simd<T>::V x) {
    using S = Simd<T>;
    using F = Format<T>;
    constexpr T round = F::round + F::bias;  // leaves the nearest integer as an exponent in the low bits
    x = S::max(S::set(-126), x);
    const auto shifted = x + round;
    const auto r = (x - (shifted - round)) * T(0.69314718055994530942);
    return (1 + (r + r * r * S::polynomial(r, F::exp))) * (typename S::V)((typename S::U)shifted << F::mantissa);
}

// The softmax of `width` gates at once: vector i holds what gate number i has in each, and `scale` makes it sum to 1.
// truth[bit] is how much have those gates in whose number the bit is set, also before that.
template <typename T>
struct Softmax {
    using S = Simd<T>;
    using V = typename S::V;
    static constexpr int width = S::width;
    V p[16], truth[4], scale;

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
        most *= -T(1.4426950408889634074);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) p[i] = power_of_two<T>(p[i] * T(1.4426950408889634074) + most);
        // Gates that differ in the lowest bit only are added up, and so on with the next bit.
        V sums[16];
        for (int i = 0; i < 16; ++i) sums[i] = p[i];
#pragma GCC unroll 4
        for (int bit = 0, n = 8; bit < 4; ++bit, n /= 2) {
            truth[bit] = sums[1];
            sums[0] += sums[1];
#pragma GCC unroll 8
            for (int i = 1; i < n; ++i) {
                truth[bit] += sums[2 * i + 1];
                sums[i] = sums[2 * i] + sums[2 * i + 1];
            }
        }
        scale = 1 / sums[0];
    }
};

// (width, 4) in memory and a vector of each column.
template <typename T>
struct Columns {
    using S = Simd<T>;
    using V = typename S::V;
    static constexpr int some = S::width < 4 ? S::width : 4;

    static void load(const T* from, V (&columns)[4]) {
#pragma GCC unroll 4
        for (int part = 0; part < 4; part += some) {
            V square[S::width];
#pragma GCC unroll 8
            for (int k = 0; k < S::width; ++k) {
                square[k] = S::zero();
                __builtin_memcpy(&square[k], from + 4 * k + part, some * sizeof(T));
            }
            S::transpose(square);
            for (int i = 0; i < some; ++i) columns[part + i] = square[i];
        }
    }

    static void store(T* to, const V (&columns)[4]) {
#pragma GCC unroll 4
        for (int part = 0; part < 4; part += some) {
            V square[S::width] = {};
            for (int i = 0; i < some; ++i) square[i] = columns[part + i];
            S::transpose(square);
#pragma GCC unroll 8
            for (int k = 0; k < S::width; ++k) __builtin_memcpy(to + 4 * k + part, &square[k], some * sizeof(T));
        }
    }
};

// `width` gates.
template <typename T>
void coefficients_of(const T* weights, T* coefficients) {
    using V = typename Simd<T>::V;
    const Softmax<T> softmax(weights);
    const V q00 = softmax.truth[3] * softmax.scale, q01 = softmax.truth[2] * softmax.scale;
    const V q10 = softmax.truth[1] * softmax.scale, q11 = softmax.truth[0] * softmax.scale;
    Columns<T>::store(coefficients, {q00, q10 - q00, q01 - q00, (q11 - q10) - (q01 - q00)});
}

// The same backward. With the gradient h of the truth table's four probabilities, gate i has the gradient sum of h over
// its bits, and the softmax takes off the mean.
template <typename T>
void gradient_of(const T* weights, const T* grad, T* grad_weights) {
    using S = Simd<T>;
    using V = typename S::V;
    const Softmax<T> softmax(weights);
    V g[4];
    Columns<T>::load(grad, g);
    const V h[4] = {g[3], g[1] - g[3], g[2] - g[3], (g[0] - g[1]) - (g[2] - g[3])};  // by bit: 11, 10, 01, 00
    V mean = S::zero();
    for (int bit = 0; bit < 4; ++bit) mean += softmax.truth[bit] * h[bit];
    mean *= softmax.scale;
    V gate[16] = {-mean};
#pragma GCC unroll 16
    for (int i = 1; i < 16; ++i) gate[i] = gate[i & (i - 1)] + h[__builtin_ctz(i)];
#pragma GCC unroll 16
    for (int part = 0; part < 16; part += S::width) {
        V square[S::width];
#pragma GCC unroll 8
        for (int k = 0; k < S::width; ++k) square[k] = softmax.p[part + k] * softmax.scale * gate[part + k];
        S::transpose(square);
#pragma GCC unroll 8
        for (int k = 0; k < S::width; ++k) S::store(grad_weights + 16 * k + part, square[k]);
    }
}

// Calls body(first gate) for each `width` gates, and rest(first gate, how many) for those that are left.
template <typename T, typename Body, typename Rest>
void pieces(int64_t n, int threads, const Body& body, const Rest& rest) {
    constexpr int64_t width = Simd<T>::width;
    parallel_for(n / width, 512, threads, [&](int64_t begin, int64_t end) {
        for (int64_t piece = begin; piece < end; ++piece) body(piece * width);
    });
    if (n % width) rest(n / width * width, n % width);
}

}  // namespace

template <typename T>
void gate_coefficients(const T* weights, T* coefficients, int64_t n, int threads) {
    const auto whole = [=](int64_t at) { coefficients_of(weights + 16 * at, coefficients + 4 * at); };
    pieces<T>(n, threads, whole, [=](int64_t at, int64_t count) {
        T from[16 * Simd<T>::width] = {}, to[4 * Simd<T>::width];
        __builtin_memcpy(from, weights + 16 * at, 16 * count * sizeof(T));
        coefficients_of(from, to);
        __builtin_memcpy(coefficients + 4 * at, to, 4 * count * sizeof(T));
    });
}

template <typename T>
void gate_coefficients_backward(const T* weights, const T* grad, T* grad_weights, int64_t n, int threads) {
    const auto whole = [=](int64_t at) { gradient_of(weights + 16 * at, grad + 4 * at, grad_weights + 16 * at); };
    pieces<T>(n, threads, whole, [=](int64_t at, int64_t count) {
        T from[16 * Simd<T>::width] = {}, above[4 * Simd<T>::width] = {}, to[16 * Simd<T>::width];
        __builtin_memcpy(from, weights + 16 * at, 16 * count * sizeof(T));
        __builtin_memcpy(above, grad + 4 * at, 4 * count * sizeof(T));
        gradient_of(from, above, to);
        __builtin_memcpy(grad_weights + 16 * at, to, 16 * count * sizeof(T));
    });
}

template void gate_coefficients(const float*, float*, int64_t, int);
template void gate_coefficients(const double*, double*, int64_t, int);
template void gate_coefficients_backward(const float*, const float*, float*, int64_t, int);
template void gate_coefficients_backward(const double*, const double*, double*, int64_t, int);

}  // namespace softly::SOFTLY_ISA
