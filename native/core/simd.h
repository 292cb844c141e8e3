// Vectors of the widest registers that the instruction set has, and elementary functions on them.
//
// Written with the vector extensions of GCC and Clang, so that one source serves every instruction set: 512 bits
// where the file is compiled for AVX-512, 256 for AVX2, 128 (SSE2, NEON) otherwise. Simd<T> is everything for element
// type T.
//
// The polynomials are minimax fits (Remez, in 60 digits) of the function that the comment beside them names; the
// relative error that is given there is that of the exact polynomial, before rounding.
#pragma once

#include <cstdint>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace softly::SOFTLY_ISA {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
#elif defined(__AVX2__)
inline constexpr int vector_bytes = 32;
#else
inline constexpr int vector_bytes = 16;
#endif

template <typename T, int terms>
struct Polynomial {
    T coefficients[terms];
};

template <typename T, int terms>
constexpr Polynomial<T, terms> scaled(const T (&coefficients)[terms], double factor) {
    Polynomial<T, terms> result{};
    for (int k = 0; k < terms; ++k) result.coefficients[k] = static_cast<T>(coefficients[k] * factor);
    return result;
}

template <typename T>
struct Format;

template <>
struct Format<float> {
    using Bits = uint32_t;
    using Signed = int32_t;
    static constexpr int mantissa = 23;
    static constexpr int bias = 127;
    static constexpr float round = 0x1.8p23f;  // adding this leaves the nearest integer in the low bits
    static constexpr float smallest_normal = 0x1p-126f;
    static constexpr float normalize = 0x1p24f;
    static constexpr int normalize_exponent = 24;
    static constexpr float exp_low = -110.0f, exp_high = 89.0f;   // beyond them exp is 0 and infinite
    static constexpr float ln2_high = 0x1.63p-1f;                 // few bits, so that multiples are exact
    static constexpr float ln2_low = -0x1.bd0106p-13f;
    static constexpr float half_pi_high = 0x1.92p0f, half_pi_low = 0x1.fb5444p-12f;
    // (exp(r) - 1 - r) / r^2 on |r| <= log(2) / 2: 3.1e-9
    static constexpr float exp[] = {0.499999934493764797f, 0.166665206345593295f, 0.0416683875822673353f,
                                    0.00836871673643460899f, 0.00138146271460048979f};
    // (log((1+s)/(1-s)) - 2s) / s^3 in s^2, for (1+s)/(1-s) in [sqrt(1/2), sqrt(2)]: 8.1e-10
    static constexpr float log[] = {0.666667764096001073f, 0.399775375792153868f, 0.29871848770447525f};
    // (atan(q) - q) / q^3 in q^2 on [0, 1]: 1.7e-8
    static constexpr float atan[] = {-0.333331527582293163f,  0.199937733655448362f,   -0.142110593872549514f,
                                     0.106660190580784126f,   -0.0755224118555565989f, 0.0432121344545946195f,
                                     -0.0163680710126855932f, 0.00292072214168076283f};
    static constexpr auto atan_by_pi = scaled(atan, 0.318309886183790672);
    // exp(z^2) erfc(z) (z + c) in (z - c) / (z + c), for z in [0, 10.2]: 2.1e-9
    static constexpr float erfc_centre = 3.0f, erfc_end = 10.2f;
    static constexpr float erfc[] = {1.07400690776700662f,     -0.883394486446231209f,  0.590228298511741626f,
                                     -0.310466008521551808f,   0.119529068338361014f,   -0.0268398261134221606f,
                                     -0.0012264304010672436f,  0.00308032765557924703f, -0.00048317754606104544f,
                                     -0.000325333580775788344f};
};

template <>
struct Format<double> {
    using Bits = uint64_t;
    using Signed = int64_t;
    static constexpr int mantissa = 52;
    static constexpr int bias = 1023;
    static constexpr double round = 0x1.8p52;
    static constexpr double smallest_normal = 0x1p-1022;
    static constexpr double normalize = 0x1p54;
    static constexpr int normalize_exponent = 54;
    static constexpr double exp_low = -750.0, exp_high = 710.0;
    static constexpr double ln2_high = 0x1.62e42fee00000p-1;
    static constexpr double ln2_low = 0x1.a39ef35793c76p-33;
    static constexpr double half_pi_high = 0x1.921fb5p0, half_pi_low = 0x1.110b4611a6263p-26;
    // As above: 3.6e-18, 1.2e-18, 2.8e-17, and 1.8e-17 for z in [0, 27.3]
    static constexpr double exp[] = {0.500000000000001063,     0.166666666666664126,   0.0416666666665301552,
                                     0.00833333333349439909,   0.00138888889436310855, 0.000198412695066888462,
                                     0.0000248014930978285375, 2.75575862908844208e-6, 2.76302487958808182e-7,
                                     2.50000844257743707e-8};
    static constexpr double log[] = {0.666666666666673446, 0.399999999994143434, 0.285714287424712814,
                                     0.222221985637432842, 0.181835648585334585, 0.153140359178124441,
                                     0.147961057790950072};
    static constexpr double atan[] = {
        -0.333333333333318588,   0.199999999997550112,    -0.142857142713344547,    0.111111106787431484,
        -0.0909090123535290102,  0.076922129305674203,    -0.0666586036617286088,   0.0587730780032608034,
        -0.0523923316037921314,  0.0467395019406269118,   -0.0409263977227881134,   0.0340678412561026303,
        -0.0258268413028016956,  0.0169780847999804399,   -0.00918459890233894784,  0.00385599793728119863,
        -0.00116408079955527588, 0.000223024549594494292, -0.0000202587868570719083};
    static constexpr auto atan_by_pi = scaled(atan, 0.318309886183790672);
    static constexpr double erfc_centre = 4.0, erfc_end = 27.3;
    static constexpr double erfc[] = {
        1.09599566100049111,     -0.976548729080882426,     0.773208702265240801,     -0.540853831313187985,
        0.330851587877791104,    -0.174010937241476958,     0.0763815149142235377,    -0.0263700533166151397,
        0.00611205560194571047,  -0.000280959071093133982,  -0.000455052357400546479, 0.000176813917753425875,
        -3.6363272279035147e-6,  -0.0000188646537182008579, 4.69675636529099903e-6,   1.4324899943999461e-6,
        -8.48538300259697655e-7, -8.68725777692719044e-8,   1.24353874322293412e-7,   9.614897250755107e-9,
        -1.38404288864534296e-8, -2.76651911224811229e-9};
};

template <typename T>
struct Simd {
    using F = Format<T>;
    static constexpr int width = vector_bytes / sizeof(T);

    typedef T V __attribute__((vector_size(vector_bytes)));
    typedef typename F::Bits U __attribute__((vector_size(vector_bytes)));
    typedef typename F::Signed Mask __attribute__((vector_size(vector_bytes)));
    typedef T Pair __attribute__((vector_size(2 * sizeof(T))));

    static V load(const T* from) {
        V value;
        __builtin_memcpy(&value, from, sizeof value);
        return value;
    }
    static void store(T* to, V value) { __builtin_memcpy(to, &value, sizeof value); }
    static V set(T value) { return value - V{}; }
    static V zero() { return V{}; }
    static V select(Mask mask, V yes, V no) { return mask ? yes : no; }
    // Bit k is set where element k of the mask is.
    static uint32_t bits(Mask mask) {
#if defined(__AVX512F__)
        if constexpr (sizeof(T) == 4) return _mm512_movepi32_mask((__m512i)mask);
        if constexpr (sizeof(T) == 8) return _mm512_movepi64_mask((__m512i)mask);
#elif defined(__AVX2__)
        if constexpr (sizeof(T) == 4) return static_cast<uint32_t>(_mm256_movemask_ps((__m256)mask));
        if constexpr (sizeof(T) == 8) return static_cast<uint32_t>(_mm256_movemask_pd((__m256d)mask));
#endif
        uint32_t all = 0;
        for (int lane = 0; lane < width; ++lane) all |= static_cast<uint32_t>(mask[lane] & 1) << lane;
        return all;
    }
    static V abs(V x) { return (V)((U)x & ~(U)set(T(-0.0))); }
    // x >= 0 with the sign of another number.
    static V copy_sign(V x, V sign) { return (V)((U)x | ((U)sign & (U)set(T(-0.0)))); }
    // By the sign bit, which zeros and NaN have too.
    static V by_sign(V sign, V negative, V positive) {
#if defined(__AVX2__) && !defined(__AVX512F__)
        if constexpr (sizeof(T) == 4) return (V)_mm256_blendv_ps((__m256)positive, (__m256)negative, (__m256)sign);
        if constexpr (sizeof(T) == 8) return (V)_mm256_blendv_pd((__m256d)positive, (__m256d)negative, (__m256d)sign);
#endif
        return (Mask)sign < 0 ? negative : positive;
    }
    // b where either is NaN, which is how the instruction has it.
    static V min(V a, V b) {
#if defined(__AVX512F__)
        if constexpr (sizeof(T) == 4) return (V)_mm512_mask_min_ps((__m512)a, 0xffff, (__m512)a, (__m512)b);
        if constexpr (sizeof(T) == 8) return (V)_mm512_mask_min_pd((__m512d)a, 0xff, (__m512d)a, (__m512d)b);
#elif defined(__AVX2__)
        if constexpr (sizeof(T) == 4) return (V)_mm256_min_ps((__m256)a, (__m256)b);
        if constexpr (sizeof(T) == 8) return (V)_mm256_min_pd((__m256d)a, (__m256d)b);
#endif
        return a < b ? a : b;
    }
    static V max(V a, V b) {
#if defined(__AVX512F__)
        if constexpr (sizeof(T) == 4) return (V)_mm512_mask_max_ps((__m512)a, 0xffff, (__m512)a, (__m512)b);
        if constexpr (sizeof(T) == 8) return (V)_mm512_mask_max_pd((__m512d)a, 0xff, (__m512d)a, (__m512d)b);
#elif defined(__AVX2__)
        if constexpr (sizeof(T) == 4) return (V)_mm256_max_ps((__m256)a, (__m256)b);
        if constexpr (sizeof(T) == 8) return (V)_mm256_max_pd((__m256d)a, (__m256d)b);
#endif
        return a > b ? a : b;
    }
    static V sqrt(V x) {
        for (int lane = 0; lane < width; ++lane) {
            x[lane] = sizeof(T) == 4 ? T(__builtin_sqrtf(x[lane])) : T(__builtin_sqrt(x[lane]));
        }
        return x;
    }

    // The leading half of the mantissa: products of two such numbers are exact.
    static V leading(V x) { return (V)((U)x & ~typename F::Bits(0) << (F::mantissa / 2 + 1)); }

    // Even and odd powers apart: half the latency of Horner's rule.
    template <int terms>
    static V polynomial(V x, const T (&c)[terms]) {
        const V x2 = x * x;
        V last = set(c[terms - 1]), other = set(c[terms - 2]);
#pragma GCC unroll 32
        for (int k = terms - 3; k >= 0; k -= 2) {
            last = last * x2 + c[k];
            if (k > 0) other = other * x2 + c[k - 1];
        }
        // `last` ends with c[0] if the number of terms is odd.
        return terms % 2 ? last + x * other : other + x * last;
    }

    static Mask integer(V rounded) { return (Mask)((U)rounded - (U)set(F::round)); }

    static V power_of_two(Mask exponent) { return (V)(((U)exponent + F::bias) << F::mantissa); }

    // x * 2^exponent in two steps, so that results below the normal range are rounded, not lost.
    static V scale(V x, Mask exponent) {
        const Mask half = exponent >> 1;
        return x * power_of_two(half) * power_of_two(exponent - half);
    }

    // exp(x + low), where |low| is small against 1: what a rounded argument lost.
    static V exp(V x, V low) {
        x = x < F::exp_low ? set(F::exp_low) : x;
        x = x > F::exp_high ? set(F::exp_high) : x;
        const V shifted = x * T(1.4426950408889634074) + F::round;
        const V k = shifted - F::round;
        const V r = (x - k * F::ln2_high) - (k * F::ln2_low - low);
        return scale(1 + (r + r * r * polynomial(r, F::exp)), integer(shifted));
    }
    static V exp(V x) { return exp(x, zero()); }

    // x = 2^exponent * (1 + s) / (1 - s) with the second factor in [sqrt(1/2), sqrt(2)), for x > 0; returns its log.
    static V log_reduced(V x, Mask& exponent) {
        const Mask tiny = x < F::smallest_normal;
        x = tiny ? x * F::normalize : x;
        const U offset = (U)set(T(0.70710678118654752440));
        exponent = (Mask)((U)x - offset) >> F::mantissa;
        const V m = (V)((U)x - ((U)exponent << F::mantissa)) - 1;
        exponent -= tiny & F::normalize_exponent;
        const V s = m / (2 + m), z = s * s;
        return 2 * s + s * (z * polynomial(z, F::log));
    }

    static V to_float(Mask integers) { return (V)((U)integers + (U)set(F::round)) - F::round; }

    // x^p for x > 0, |p| <= 1. The exponent's share p * k is exact to the second part of p, whatever k.
    struct Power {
        T p, high, low;
        explicit Power(T value) : p(value), high(leading(set(value))[0]), low(p - high) {}
        V operator()(V x) const {
            Mask exponent;
            const V log = log_reduced(x, exponent);
            const V k = to_float(exponent);
            const V product = k * high;
            const V shifted = product + F::round;
            const V rest = (product - (shifted - F::round)) + k * low;
            return scale(exp(rest * T(0.69314718055994530942) + log * p), integer(shifted));
        }
    };

    // atan on [0, 1].
    static V atan_unit(V q) {
        const V u = q * q;
        return q + q * (u * polynomial(u, F::atan));
    }

    // exp(-pi/2 x) for x >= 0, accurate in the far tail: the product is taken in two parts.
    static V exp_minus_half_pi(V x) {
        x = min(x, set(-F::exp_low / F::half_pi_high));
        const V high = leading(x);
        return exp(-F::half_pi_high * high, -(F::half_pi_high * (x - high) + F::half_pi_low * x));
    }

    // erfc(x / sqrt(2)) for x >= 0, and exp(-x^2 / 2), both accurate in the far tail.
    static V erfc_root_half(V x, V& gauss) {
        const V z = min(x * T(0.70710678118654752440), set(F::erfc_end));
        const V near = min(x, set(F::erfc_end * T(1.4142135623730950488)));  // beyond it both are 0
        const V high = leading(near);
        gauss = exp(T(-0.5) * high * high, T(0.5) * (high - near) * (high + near));
        const V inverse = 1 / (z + F::erfc_centre);
        return gauss * inverse * polynomial((z - F::erfc_centre) * inverse, F::erfc);
    }

    // Transposes a square of `width` rows in place.
    static void transpose(V (&r)[width]) {
        if constexpr (width == 16) {
            V t[16];
            for (int k = 0; k < 16; k += 2) {
                const V a = r[k], b = r[k + 1];
                t[k] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
                t[k + 1] = __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
            }
            for (int k = 0; k < 16; k += 4) {
                for (int h = 0; h < 2; ++h) {
                    const V a = t[k + h], b = t[k + 2 + h];
                    r[k + 2 * h] =
                        __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
                    r[k + 2 * h + 1] =
                        __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
                }
            }
            // Squares of 4 by 4 are transposed by now, and change places.
            for (int k = 0; k < 16; k += 8) {
                for (int h = 0; h < 4; ++h) {
                    const V a = r[k + h], b = r[k + 4 + h];
                    t[k + h] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
                    t[k + 4 + h] =
                        __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
                }
            }
            for (int k = 0; k < 8; ++k) {
                const V a = t[k], b = t[k + 8];
                r[k] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
                r[k + 8] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
            }
        } else if constexpr (width == 8) {
            V t[8];
            for (int k = 0; k < 8; k += 2) {
                t[k] = __builtin_shufflevector(r[k], r[k + 1], 0, 8, 1, 9, 4, 12, 5, 13);
                t[k + 1] = __builtin_shufflevector(r[k], r[k + 1], 2, 10, 3, 11, 6, 14, 7, 15);
            }
            V u[8];
            for (int k = 0; k < 8; k += 4) {
                for (int h = 0; h < 2; ++h) {
                    u[k + 2 * h] = __builtin_shufflevector(t[k + h], t[k + 2 + h], 0, 1, 8, 9, 4, 5, 12, 13);
                    u[k + 2 * h + 1] = __builtin_shufflevector(t[k + h], t[k + 2 + h], 2, 3, 10, 11, 6, 7, 14, 15);
                }
            }
            for (int k = 0; k < 4; ++k) {
                r[k] = __builtin_shufflevector(u[k], u[k + 4], 0, 1, 2, 3, 8, 9, 10, 11);
                r[k + 4] = __builtin_shufflevector(u[k], u[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
            }
        } else if constexpr (width == 4) {
            const V a = __builtin_shufflevector(r[0], r[1], 0, 4, 2, 6);
            const V b = __builtin_shufflevector(r[0], r[1], 1, 5, 3, 7);
            const V c = __builtin_shufflevector(r[2], r[3], 0, 4, 2, 6);
            const V d = __builtin_shufflevector(r[2], r[3], 1, 5, 3, 7);
            r[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
            r[1] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
            r[2] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
            r[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
        } else {
            static_assert(width == 2);
            const V a = r[0];
            r[0] = __builtin_shufflevector(a, r[1], 0, 2);
            r[1] = __builtin_shufflevector(a, r[1], 1, 3);
        }
    }

    // At most eight elements with the same sum.
    static auto folded(V a) {
        if constexpr (width == 16) {
            return __builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7) +
                   __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15);
        } else {
            return a;
        }
    }

    // The sums of the elements of each.
    static Pair sums(V first, V second) {
        const auto a = folded(first), b = folded(second);
        if constexpr (width >= 8) {
            const auto s = __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
                           __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
            return (__builtin_shufflevector(s, s, 0, 2) + __builtin_shufflevector(s, s, 1, 3)) +
                   (__builtin_shufflevector(s, s, 4, 6) + __builtin_shufflevector(s, s, 5, 7));
        } else if constexpr (width == 4) {
            const V s = __builtin_shufflevector(a, b, 0, 4, 2, 6) + __builtin_shufflevector(a, b, 1, 5, 3, 7);
            return __builtin_shufflevector(s, s, 0, 1) + __builtin_shufflevector(s, s, 2, 3);
        } else {
            return __builtin_shufflevector(a, b, 0, 2) + __builtin_shufflevector(a, b, 1, 3);
        }
    }

    // to[0] and to[1] grow by the sums of the first two, other[0] and other[1] by those of the others.
    static void add_sums(V first, V second, V third, V fourth, T* to, T* other) {
        const auto a = folded(first), b = folded(second), c = folded(third), d = folded(fourth);
        if constexpr (width >= 8) {
            const auto ab = __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
                            __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
            const auto cd = __builtin_shufflevector(c, d, 0, 2, 8, 10, 4, 6, 12, 14) +
                            __builtin_shufflevector(c, d, 1, 3, 9, 11, 5, 7, 13, 15);
            const auto all = __builtin_shufflevector(ab, cd, 0, 2, 8, 10, 4, 6, 12, 14) +
                             __builtin_shufflevector(ab, cd, 1, 3, 9, 11, 5, 7, 13, 15);
            const auto sum =
                __builtin_shufflevector(all, all, 0, 1, 2, 3) + __builtin_shufflevector(all, all, 4, 5, 6, 7);
            add(to, __builtin_shufflevector(sum, sum, 0, 1));
            add(other, __builtin_shufflevector(sum, sum, 2, 3));
        } else {
            add(to, sums(first, second));
            add(other, sums(third, fourth));
        }
    }

    static void add(T* to, Pair value) {
        Pair old;
        __builtin_memcpy(&old, to, sizeof old);
        old += value;
        __builtin_memcpy(to, &old, sizeof old);
    }
};

}  // namespace softly::SOFTLY_ISA
