// The symmetric distributions of relaxed swaps, vectorised.
//
// By symmetry everything follows from a = |d| >= 0: the tail F(-a), the density f(a), and the slope of the swap,
// (a F(-a))' = F(-a) - a f(a). Each distribution states the tail in a form that stays accurate as it goes to 0.
#pragma once

namespace softly {

enum class Distribution : int {
    heaviside,
    uniform,
    cubic_hermite,
    wigner,
    gaussian,
    laplace,
    logistic,
    hyperbolic_secant,
    cauchy,
    reciprocal,
    optimal,
};

inline constexpr const char* distribution_names[] = {
    "heaviside", "uniform",           "cubic_hermite", "wigner",     "gaussian", "laplace",
    "logistic",  "hyperbolic_secant", "cauchy",        "reciprocal", "optimal",
};

}  // namespace softly

#ifdef SOFTLY_ISA  // outside of kernels, the names alone
#include "core/simd.h"

namespace softly::SOFTLY_ISA {

template <typename T>
struct Swap {
    typename Simd<T>::V weight;   // w = F(-d), the probability of swapping
    typename Simd<T>::V tail;     // F(-|d|) with the sign of d, from which both w and 1 - w follow without a loss
    typename Simd<T>::V density;  // f(d) = -dw/dd
    typename Simd<T>::V slope;    // d(d w)/dd = w - d f(d)
    typename Simd<T>::V blur;     // |d| F(-|d|): how far the outputs are from minimum and maximum
};

inline constexpr double pi = 3.14159265358979323846;

template <typename T>
struct Tail {
    typename Simd<T>::V weight, density, slope;
};

// Comparisons are false for NaN, so that it has to be put back where one of them chose a number.
template <Distribution distribution>
inline constexpr bool keeps_nan = distribution == Distribution::cauchy || distribution == Distribution::reciprocal;

// The first half of the work for a tail, which others can be done beside: it takes long, and little follows from it
// until it is there.
template <Distribution distribution, typename T>
inline typename Simd<T>::V head(typename Simd<T>::V a) {
    using S = Simd<T>;
    using enum Distribution;
    if constexpr (distribution == laplace || distribution == logistic) {
        return S::exp(-a);
    } else if constexpr (distribution == hyperbolic_secant) {
        return S::exp_minus_half_pi(a);
    } else if constexpr (distribution == cauchy) {
        return S::min(a, S::set(1)) / S::max(S::set(1), a);  // a up to 1, and 1/a beyond
    } else if constexpr (distribution == reciprocal) {
        return 1 / (1 + a);
    } else {
        return a;
    }
}

template <Distribution distribution, typename T>
inline Tail<T> tail(typename Simd<T>::V a, typename Simd<T>::V head) {
    using S = Simd<T>;
    using V = typename S::V;
    using enum Distribution;
    V weight, density;
    if constexpr (distribution == heaviside) {
        weight = a > 0 ? S::zero() : S::set(T(0.5));
        return {weight, S::zero(), weight};
    } else if constexpr (distribution == uniform) {
        weight = a < 1 ? (1 - a) * T(0.5) : S::zero();
        density = a < 1 ? S::set(T(0.5)) : S::zero();
    } else if constexpr (distribution == cubic_hermite) {
        const V y = a < 1 ? (1 - a) * T(0.5) : S::zero();
        weight = y * y * (3 - 2 * y);
        density = 3 * y * (1 - y);
    } else if constexpr (distribution == wigner) {
        const V inside = a < 1 ? a : S::set(1);
        const V root = S::sqrt((1 - inside) * (1 + inside));
        const V angle = 2 * S::atan_unit(S::sqrt((1 - inside) / (1 + inside)));  // acos, accurate at 1
        weight = (angle - inside * root) * T(1 / pi);
        density = root * T(2 / pi);
    } else if constexpr (distribution == gaussian) {
        V gauss;
        weight = S::erfc_root_half(a, gauss) * T(0.5);
        density = gauss * T(0.39894228040143267794);
    } else if constexpr (distribution == laplace) {
        weight = density = head * T(0.5);
    } else if constexpr (distribution == logistic) {
        const V inverse = 1 / (1 + head);
        weight = head * inverse;
        density = weight * inverse;
    } else if constexpr (distribution == hyperbolic_secant) {
        weight = S::atan_unit(head) * T(2 / pi);
        density = head / (1 + head * head);
    } else if constexpr (distribution == cauchy) {
        // atan(1/a) is the tail beyond 1; there 1/(1 + a^2) is q^2/(1 + q^2), which cannot overflow. a f(a) is
        // q/(1 + q^2) on both sides.
        const V q = head, u = q * q;
        const V inverse = T(1 / pi) / (1 + u);
        const V angle = q * (u * S::polynomial(u, S::F::atan_by_pi.coefficients) + T(1 / pi));
        weight = a > 1 ? angle : T(0.5) - angle;
        return {weight, a > 1 ? u * inverse : inverse, weight - q * inverse};
    } else if constexpr (distribution == reciprocal) {
        density = head * head * T(0.5);
        return {head * T(0.5), density, density};
    } else {
        static_assert(distribution == optimal);
        const V inverse = T(0.25) / a;  // only where a > 1/4
        weight = a > T(0.25) ? inverse * T(0.25) : T(0.5) - a;
        density = a > T(0.25) ? inverse * inverse : S::set(1);
        return {weight, density, a > T(0.25) ? S::zero() : T(0.5) - 2 * a};
    }
    return {weight, density, weight - a * density};
}

// The distribution's swap at difference d, its argument replaced by phi(d) = d / (|d|^strength + 1e-10) where art.
template <Distribution distribution, bool art, typename T>
struct Relaxation {
    using S = Simd<T>;
    using V = typename S::V;

    typename S::Power power;

    explicit Relaxation(double strength) : power(T(strength)) {}

    Swap<T> operator()(V d) const { return finish(d, begin(d)); }

    // In two halves, so that the first of the next swap can run beside the second of this one.
    V begin(V d) const {
        const V a = S::abs(d);
        if constexpr (art) return power(a);
        return head<distribution, T>(a);
    }

    Swap<T> finish(V d, V begun) const {
        const V a = S::abs(d);
        Tail<T> at;
        if constexpr (art) {
            const V lifted = begun;
            const V inverse = 1 / (lifted + T(1e-10)), inside = a > 0 ? a * inverse : a;
            at = tail<distribution, T>(inside, head<distribution, T>(inside));
            // phi's derivative; at ties, where it has none or a huge one, it is 0 by definition.
            const V inner = ((1 - power.p) * lifted + T(1e-10)) * inverse * inverse;
            at.density = a > 0 ? at.density * inner : S::zero();
            at.slope = at.weight - a * at.density;
        } else {
            at = tail<distribution, T>(a, begun);
        }
        // F(d) = 1 - F(-d), and the slopes at d and -d sum to 1 too.
        const auto negative = d < 0, number = d == d;
        Swap<T> swap;
        swap.weight = negative ? 1 - at.weight : at.weight;
        swap.tail = S::copy_sign(at.weight, d);
        swap.slope = negative ? 1 - at.slope : at.slope;
        swap.density = at.density;
        if constexpr (art || !keeps_nan<distribution>) {
            swap.weight = number ? swap.weight : d;
            swap.tail = number ? swap.tail : d;
            swap.density = number ? swap.density : d;
            swap.slope = number ? swap.slope : d;
        }
        swap.blur = a * at.weight;
        return swap;
    }
};

// Calls f with the distribution's Relaxation.
template <typename T, typename F>
inline auto with_relaxation(int distribution, double art, F&& f) {
    using enum Distribution;
    const bool plain = art < 0;
    switch (static_cast<Distribution>(distribution)) {
#define SOFTLY_CASE(name) \
    case name: return plain ? f(Relaxation<name, false, T>(0)) : f(Relaxation<name, true, T>(art));
        SOFTLY_CASE(uniform)
        SOFTLY_CASE(cubic_hermite)
        SOFTLY_CASE(wigner)
        SOFTLY_CASE(gaussian)
        SOFTLY_CASE(laplace)
        SOFTLY_CASE(logistic)
        SOFTLY_CASE(hyperbolic_secant)
        SOFTLY_CASE(cauchy)
        SOFTLY_CASE(reciprocal)
        SOFTLY_CASE(optimal)
#undef SOFTLY_CASE
        default: return f(Relaxation<heaviside, false, T>(0));  // only the sign matters, and art keeps it
    }
}

}  // namespace softly::SOFTLY_ISA
#endif
