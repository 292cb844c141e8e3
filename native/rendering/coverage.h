// The probability that a face covers a pixel at a signed distance, and its derivative, for vectors of pairs.
//
// Both tails are stated, p = F(x) and q = 1 - F(x), each accurate where it is small: T-conorms need the one or the
// other. x = steepness * d + shift, or with d |d| in the place of d.
#pragma once

#include "core/distributions.h"
#include "core/simd.h"

namespace softly::SOFTLY_ISA {

// The numbers of core/distributions.h, and behind them those that are not symmetric.
inline constexpr int gumbel_max = 11, exponential = 12, levy = 13, gamma_half = 14, gamma_two = 15, families = 16;

// How far from the border a family has an end on the side of small x, so that outside of it p is 0.
inline constexpr bool ends_below(int family, bool reversed) {
    return family <= static_cast<int>(Distribution::wigner) || (family >= exponential && !reversed);
}

struct Dial {
    double steepness, shift, cutoff;  // faces outside of which a pixel lies at d^2 >= cutoff are dropped
    int family;
    bool reversed, squared, cut;
};

template <typename T>
struct Covered {
    typename Simd<T>::V p, q, f;
};

// exp(x) for x <= 0, held above the subnormal numbers: no probability that small matters to a pixel.
template <typename T>
inline typename Simd<T>::V exp_below(typename Simd<T>::V x) {
    using S = Simd<T>;
    using F = typename S::F;
    x = S::max(x, S::set(sizeof(T) == 4 ? T(-87) : T(-708)));
    const typename S::V shifted = x * T(1.4426950408889634074) + F::round;
    const typename S::V k = shifted - F::round;
    const typename S::V r = (x - k * F::ln2_high) - k * F::ln2_low;
    const typename S::V power = 1 + (r + r * r * S::polynomial(r, F::exp));
    return (typename S::V)((typename S::U)power + ((typename S::U)shifted << F::mantissa));
}

// 1 - exp(-y) for y >= 0.
template <typename T>
inline typename Simd<T>::V one_minus_exp(typename Simd<T>::V y, typename Simd<T>::V exp) {
    using S = Simd<T>;
    const auto small = y < T(0.34);
    const typename S::V r = small ? -y : S::zero();
    return small ? -(r + r * r * S::polynomial(r, S::F::exp)) : 1 - exp;
}

// erf(z / sqrt(2)) for z >= 0, given the complement: by its series where that would lose digits.
template <typename T>
inline typename Simd<T>::V erf_root_half(typename Simd<T>::V z, typename Simd<T>::V complement) {
    using S = Simd<T>;
    constexpr int terms = sizeof(T) == 4 ? 8 : 14;
    constexpr auto series = [] {
        Polynomial<T, terms> result{};
        double factor = 0.79788456080286535588;  // sqrt(2 / pi) (-1/2)^n / n!
        for (int n = 0; n < terms; ++n) {
            result.coefficients[n] = static_cast<T>(factor / (2 * n + 1));
            factor *= -0.5 / (n + 1);
        }
        return result;
    }();
    return z < 1 ? z * S::polynomial(z * z, series.coefficients) : 1 - complement;
}

template <int family, typename T>
inline Covered<T> covered(typename Simd<T>::V x) {
    using S = Simd<T>;
    using V = typename S::V;
    Covered<T> at;
    if constexpr (family < gumbel_max) {
        constexpr auto distribution = static_cast<Distribution>(family);
        const V a = S::abs(x);
        constexpr bool decays = distribution == Distribution::laplace || distribution == Distribution::logistic;
        const V begun = decays ? exp_below<T>(-a) : head<distribution, T>(a);
        const Tail<T> tail = SOFTLY_ISA::tail<distribution, T>(a, begun);
        const auto negative = x < 0;
        const V rest = 1 - tail.weight;
        at = {negative ? tail.weight : rest, negative ? rest : tail.weight, tail.density};
    } else if constexpr (family == gumbel_max) {
        const V decay = S::exp(-S::max(x, S::set(-20)));
        at.p = S::exp(-decay);
        at.q = one_minus_exp<T>(decay, at.p);
        at.f = decay * at.p;
    } else if constexpr (family == exponential) {
        const V y = S::max(x, S::zero());
        const V q = exp_below<T>(-y);
        at = {one_minus_exp<T>(y, q), q, x < 0 ? S::zero() : q};
    } else if constexpr (family == levy) {
        // Below this point F, and with it every derivative, underflows in double precision.
        const auto small = x <= T(5e-4);
        const V z = 1 / S::sqrt(small ? S::set(1) : x);
        V gauss;
        const V p = S::erfc_root_half(z, gauss);
        at.p = small ? S::zero() : p;
        at.q = small ? S::set(1) : erf_root_half<T>(z, p);
        at.f = small ? S::zero() : z * z * z * gauss * T(0.39894228040143267794);
    } else if constexpr (family == gamma_half) {
        const V y = S::max(x, S::zero());
        const V z = S::sqrt(2 * y);
        V gauss;
        at.q = S::erfc_root_half(z, gauss);
        at.p = erf_root_half<T>(z, at.q);
        // The density is infinite at 0, and clamped there.
        const V density = gauss * T(0.56418958354775628695) / S::sqrt(S::max(y, S::set(T(1e-12))));
        at.f = x < 0 ? S::zero() : density;
    } else {
        static_assert(family == gamma_two);
        const V y = S::max(x, S::zero());
        const V decay = exp_below<T>(-y);
        at.q = (1 + y) * decay;
        const auto small = y < T(0.34);
        const V r = small ? y : S::zero();
        at.p = small ? decay * r * r * S::polynomial(r, S::F::exp) : 1 - at.q;
        at.f = y * decay;
    }
    return at;
}

// p, q and the derivative of p in x at `count` vectors of distances.
template <int family, typename T, bool derivative>
__attribute__((flatten)) void cover(const Dial& dial, const typename Simd<T>::V* d, int count, typename Simd<T>::V* p,
                                    typename Simd<T>::V* q, typename Simd<T>::V* f) {
    using S = Simd<T>;
    using V = typename S::V;
    const T steepness = T(dial.steepness), shift = T(dial.shift);
    for (int i = 0; i < count; ++i) {
        V x = d[i] * steepness;
        if (dial.squared) x *= S::abs(d[i]);
        x += shift;
        Covered<T> at;
        if (dial.reversed) {
            at = covered<family, T>(-x);
            const V other = at.p;
            at.p = at.q;
            at.q = other;
        } else {
            at = covered<family, T>(x);
        }
        if (dial.cut) {
            const auto dropped = ((d[i] < 0) & (d[i] * d[i] * steepness >= T(dial.cutoff))) | (at.p <= T(1e-6));
            at.p = dropped ? S::zero() : at.p;
            at.q = dropped ? S::set(1) : at.q;
            at.f = dropped ? S::zero() : at.f;
        }
        p[i] = at.p;
        q[i] = at.q;
        if constexpr (derivative) f[i] = at.f;
    }
}

template <typename T>
using Cover = void (*)(const Dial&, const typename Simd<T>::V*, int, typename Simd<T>::V*, typename Simd<T>::V*,
                       typename Simd<T>::V*);

template <typename T, bool derivative>
inline Cover<T> cover_of(int family) {
    static constexpr Cover<T> table[families] = {
        cover<0, T, derivative>,  cover<1, T, derivative>,  cover<2, T, derivative>,  cover<3, T, derivative>,
        cover<4, T, derivative>,  cover<5, T, derivative>,  cover<6, T, derivative>,  cover<7, T, derivative>,
        cover<8, T, derivative>,  cover<9, T, derivative>,  cover<10, T, derivative>, cover<11, T, derivative>,
        cover<12, T, derivative>, cover<13, T, derivative>, cover<14, T, derivative>, cover<15, T, derivative>,
    };
    return table[family];
}

}  // namespace softly::SOFTLY_ISA
