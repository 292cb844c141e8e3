// T-conorms of many operands: A = h(G) with a state G, to which every operand p = 1 - q adds, or by which it multiplies.
//
//     dA/dp_i = coefficient(G) * slope(p_i)
//
// The state of a pixel is one number, and for the maximum another one: how many operands are the largest.
#pragma once

#include "core/simd.h"

namespace softly::SOFTLY_ISA {

// In the order of softly/rendering/codes.py, and behind them the probabilistic sum: Hamacher's at 1, without divisions.
enum Aggregation : int {
    maximum,
    hamacher_sum,
    frank,
    yager,
    aczel_alsina,
    dombi,
    schweizer_sklar,
    total,
    probabilistic,
    aggregations
};

// x^r for x >= 0; 0 at 0 for r > 0.
template <typename T>
struct Raise {
    using S = Simd<T>;
    using V = typename S::V;
    int whole;
    bool inverse, root, rest;
    typename S::Power power;

    explicit Raise(double r)
        : whole(static_cast<int>(r < 0 ? -r : r)),
          inverse(r < 0),
          root((r < 0 ? -r : r) - whole == 0.5),
          rest((r < 0 ? -r : r) - whole != 0 && !root),
          power(T((r < 0 ? -r : r) - whole)) {}

    V operator()(V x) const {
        V result = S::set(1);
        if (root) result = S::sqrt(x);
        if (rest) result = x > 0 ? power(x > 0 ? x : S::set(1)) : S::zero();
        V square = x;
        for (int n = whole; n > 0; n >>= 1) {
            if (n & 1) result *= square;
            if (n > 1) square *= square;
        }
        return inverse ? 1 / result : result;
    }
};

template <typename T>
inline typename Simd<T>::V exp_minus_one(typename Simd<T>::V y) {
    using S = Simd<T>;
    const auto small = S::abs(y) < T(0.34);
    const typename S::V r = small ? y : S::zero();
    return small ? r + r * r * S::polynomial(r, S::F::exp) : S::exp(y) - 1;
}

template <typename T>
struct Family {
    using S = Simd<T>;
    using V = typename S::V;
    int kind;
    double r;
    Raise<T> raise, lowered;  // to r and to r - 1
    T rate;  // log r, of Frank's family
    V whole;  // and r - 1

    Family(int number, double r)
        : kind(number == hamacher_sum && r == 1 ? int(probabilistic) : number),
          r(r),
          raise(r),
          lowered(r - 1),
          rate(number == frank ? T(__builtin_log(r)) : T(1)),
          whole(exp_minus_one<T>(S::set(rate))) {}

    bool multiplies() const { return kind == hamacher_sum || kind == frank || kind == probabilistic; }

    T neutral() const { return multiplies() ? T(1) : T(0); }

    // How much dropped operands may add to the state, or take from it, so that A changes by no more than epsilon.
    double budget(double epsilon) const {
        switch (kind) {
            case hamacher_sum: return r < 1 ? epsilon * r : epsilon;
            case frank: return epsilon * __builtin_fmin(1, r * __builtin_log(r) / (r - 1));
            case yager:
            case aczel_alsina:
            case dombi: return r < 1 ? epsilon * r : __builtin_pow(epsilon, r);
            case schweizer_sklar: return epsilon * -r;
            default: return epsilon;
        }
    }

    double value(double g) const {
        switch (kind) {
            case hamacher_sum: return 1 - r * g / (r + (1 - r) * (1 - g));
            case frank: return 1 - __builtin_log1p((r - 1) * g) / __builtin_log(r);
            case yager: return __builtin_fmin(1, rooted(g));
            case aczel_alsina: return -__builtin_expm1(-rooted(g));
            case dombi: return g < 1e300 ? rooted(g) / (1 + rooted(g)) : 1;
            case schweizer_sklar: return 1 - __builtin_pow(1 + g, 1 / r);
            default: return g;
        }
    }

    double coefficient(double g, double number) const {
        switch (kind) {
            case maximum: return number > 0 ? 1 / number : 0;
            case hamacher_sum: {
                const double below = r + (1 - r) * (1 - g);
                return r * r * g / (below * below);
            }
            case frank: return __builtin_fabs(r - 1) * g / (1 + (r - 1) * g);
            case yager: return g < 1 ? slant(g) : 0;
            case aczel_alsina: return g < 1e300 ? slant(g) * __builtin_exp(-rooted(g)) : 0;
            case dombi: return g < 1e30 ? slant(g) / ((1 + rooted(g)) * (1 + rooted(g))) : __builtin_pow(g, -1 - 1 / r);
            case schweizer_sklar: return __builtin_pow(1 + g, 1 / r - 1);
            default: return 1;
        }
    }

    void values(const T* g, int count, T* out) const {
        if (kind == probabilistic) {
            for (int i = 0; i < count; ++i) out[i] = 1 - g[i];
        } else {
            for (int i = 0; i < count; ++i) out[i] = static_cast<T>(value(g[i]));
        }
    }

    // Gradients times their coefficients.
    void scale(const T* g, const T* number, int count, T* grad) const {
        if (kind == probabilistic) {
            for (int i = 0; i < count; ++i) grad[i] *= g[i];
        } else {
            for (int i = 0; i < count; ++i) {
                grad[i] = grad[i] == 0 ? T(0) : static_cast<T>(grad[i] * coefficient(g[i], number[i]));
            }
        }
    }

  private:
    double rooted(double g) const { return r == 1 ? g : r == 2 ? __builtin_sqrt(g) : __builtin_pow(g, 1 / r); }
    // g^(1/r - 1), which belongs to r p^(r - 1) / r.
    double slant(double g) const { return g > 0 ? (r == 1 ? 1 : rooted(g) / g) : 0; }
};

// -log(1 - p), given both p and q = 1 - p.
template <typename T>
inline typename Simd<T>::V minus_log(typename Simd<T>::V p, typename Simd<T>::V q) {
    using S = Simd<T>;
    using V = typename S::V;
    typename S::Mask exponent;
    const auto small = p < T(0.25);
    const V s = small ? p / (2 - p) : S::zero(), z = s * s;
    const V near = 2 * s + s * (z * S::polynomial(z, S::F::log));
    const V log = S::log_reduced(q > 0 ? q : S::set(1), exponent) + S::to_float(exponent) * T(0.69314718055994530942);
    return small ? near : q > 0 ? -log : S::set(T(1e30));  // which acts like infinity
}

// What an operand adds, or for those that multiply, its factor.
template <int kind, typename T>
inline typename Simd<T>::V share([[maybe_unused]] const Family<T>& family, typename Simd<T>::V p,
                                 [[maybe_unused]] typename Simd<T>::V q) {
    using S = Simd<T>;
    using V = typename S::V;
    if constexpr (kind == probabilistic) {
        return q;
    } else if constexpr (kind == hamacher_sum) {
        return q / (q + T(family.r) * p);
    } else if constexpr (kind == frank) {
        // (r^q - 1) / (r - 1), by what p takes from 1 where that is little: many small errors of one sign would add up.
        const V taken = family.rate * p;
        const auto little = S::abs(taken) < 1;
        const V grown = exp_minus_one<T>(little ? -taken : family.rate * q);
        return little ? 1 + grown * T(family.r / (family.r - 1)) : grown / family.whole;
    } else if constexpr (kind == yager) {
        return family.raise(p);
    } else if constexpr (kind == aczel_alsina) {
        return family.raise(minus_log<T>(p, q));
    } else if constexpr (kind == dombi) {
        constexpr T most = sizeof(T) == 4 ? T(1e30) : T(1e300);
        return q > 0 ? family.raise(S::min(p / q, S::set(most))) : S::set(__builtin_inf());
    } else if constexpr (kind == schweizer_sklar) {
        // q^r - 1, by the exponential where p is small.
        const V y = minus_log<T>(p, q) * T(-family.r);
        return y < T(0.34) ? exp_minus_one<T>(y) : family.raise(q) - 1;
    } else {
        return p;
    }
}

// What an operand may change the state by, to decide whether it can be dropped.
template <int kind, typename T>
inline typename Simd<T>::V weight([[maybe_unused]] const Family<T>& family, typename Simd<T>::V p,
                                  [[maybe_unused]] typename Simd<T>::V q) {
    if constexpr (kind == probabilistic) {
        return p;
    } else if constexpr (kind == hamacher_sum) {
        return T(family.r) * p / (q + T(family.r) * p);
    } else if constexpr (kind == frank) {
        const double rate = __builtin_log(family.r);
        return p * T(__builtin_fmax(rate / (family.r - 1), rate * family.r / (family.r - 1)));  // at most
    } else {
        return share<kind, T>(family, p, q);
    }
}

// Takes `entries` operands of `size` vectors of pixels in.
template <int kind, typename T>
void gather(const Family<T>& family, const typename Simd<T>::V* p, const typename Simd<T>::V* q, int entries, int size,
            typename Simd<T>::V* state, typename Simd<T>::V* number) {
    using S = Simd<T>;
    using V = typename S::V;
    constexpr bool multiplies = kind == probabilistic || kind == hamacher_sum || kind == frank;
    for (int k = 0; k < size; ++k) {
        int i = k;
        if constexpr (kind == maximum) {
            for (; i < entries * size; i += size) {
                number[k] = p[i] > state[k] ? S::set(1) : p[i] == state[k] ? number[k] + 1 : number[k];
                state[k] = p[i] > state[k] ? p[i] : state[k];
            }
        } else {
            // Four at once, since each has to wait for the one before.
            const auto part = [&](int at) { return share<kind, T>(family, p[at], q[at]); };
            V total = state[k];
            for (; i + 3 * size < entries * size; i += 4 * size) {
                const V a = part(i), b = part(i + size), c = part(i + 2 * size), d = part(i + 3 * size);
                total = multiplies ? total * ((a * b) * (c * d)) : total + ((a + b) + (c + d));
            }
            for (; i < entries * size; i += size) total = multiplies ? total * part(i) : total + part(i);
            state[k] = total;
        }
    }
}

// f becomes f * slope(p). Operands at 1, whose slope may be infinite, have no derivative left.
template <int kind, typename T>
void slopes([[maybe_unused]] const Family<T>& family, const typename Simd<T>::V* p, const typename Simd<T>::V* q,
            int count, [[maybe_unused]] const int32_t* at, [[maybe_unused]] const typename Simd<T>::V* state,
            typename Simd<T>::V* f) {
    using S = Simd<T>;
    using V = typename S::V;
    constexpr T tiny = sizeof(T) == 4 ? T(1e-30) : T(1e-250), most = sizeof(T) == 4 ? T(1e25) : T(1e250);
    for (int i = 0; i < count; ++i) {
        const auto open = kind == yager ? p[i] >= 0 : q[i] > 0;
        const V one = p[i], other = open ? q[i] : S::set(1);
        V slope = S::set(1);
        if constexpr (kind == maximum) {
            slope = one == state[at[i]] ? S::set(1) : S::zero();
        } else if constexpr (kind == probabilistic) {
            slope = 1 / other;
        } else if constexpr (kind == hamacher_sum) {
            slope = 1 / ((other + T(family.r) * one) * other);
        } else if constexpr (kind == frank) {
            const V y = family.rate * other;
            slope = S::exp(y) / S::abs(exp_minus_one<T>(y));  // as the coefficient, without its sign
        } else if constexpr (kind == yager) {
            slope = family.lowered(S::max(one, S::set(tiny)));
        } else if constexpr (kind == aczel_alsina) {
            slope = family.lowered(S::max(minus_log<T>(one, other), S::set(tiny))) / other;
        } else if constexpr (kind == dombi) {
            slope = family.lowered(S::max(one / other, S::set(tiny))) / other;
            f[i] /= other;  // apart, since the square of a small number may be nothing
        } else if constexpr (kind == schweizer_sklar) {
            slope = family.lowered(other);
        }
        if constexpr (kind == maximum || kind == total) {
            f[i] *= slope;
        } else {
            // Held where it would overflow: what it is multiplied by vanishes there.
            f[i] = (open & (f[i] > 0)) ? S::min(f[i] * slope, S::set(most)) : S::zero();
        }
    }
}

// A kind's functions.
template <typename T>
struct Aggregate {
    using V = typename Simd<T>::V;
    V (*weight)(const Family<T>&, V, V);
    void (*gather)(const Family<T>&, const V*, const V*, int, int, V*, V*);
    void (*slopes)(const Family<T>&, const V*, const V*, int, const int32_t*, const V*, V*);
};

template <typename T>
inline Aggregate<T> aggregate_of(int kind) {
    static constexpr Aggregate<T> table[aggregations] = {
        {weight<0, T>, gather<0, T>, slopes<0, T>}, {weight<1, T>, gather<1, T>, slopes<1, T>},
        {weight<2, T>, gather<2, T>, slopes<2, T>}, {weight<3, T>, gather<3, T>, slopes<3, T>},
        {weight<4, T>, gather<4, T>, slopes<4, T>}, {weight<5, T>, gather<5, T>, slopes<5, T>},
        {weight<6, T>, gather<6, T>, slopes<6, T>}, {weight<7, T>, gather<7, T>, slopes<7, T>},
        {weight<8, T>, gather<8, T>, slopes<8, T>},
    };
    return table[kind];
}

}  // namespace softly::SOFTLY_ISA
