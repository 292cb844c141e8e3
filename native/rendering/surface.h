// The point of a triangle that a pixel sees, or that is closest to what it sees beside it: weights of the corners, depth
// and closeness.
//
// The ray of a pixel spans a volume with every two corners, in proportion to the weight of the third. With corners
// relative to the ray nothing cancels but what is small. Where their sum is nothing but rounding, a triangle is seen from
// its side, and all corners weigh alike.
#pragma once

#include "core/simd.h"

namespace softly::SOFTLY_ISA {

// Closeness is above / (below + depth), of depths from near to far.
struct Range {
    double near, far, above, below;
    Range(double near, double far) : near(near), far(far), above(near > 0 ? near : 1), below(near > 0 ? 0 : 1) {}
    template <typename T>
    T closeness(T depth) const {
        const T held = depth < T(near) ? T(near) : depth > T(far) ? T(far) : depth;
        return T(above) / (T(below) + held);
    }
};

template <typename T>
struct Surface {
    using S = Simd<T>;
    using V = typename S::V;
    using Mask = typename S::Mask;

    V across[3], up[3];  // corners relative to the ray
    V share[3], weight[3], inverse, scale, depth, closeness;
    Mask inside[3], flat;

    // A triangle's corners (3, 3) and depths (3), at pixels (x, y).
    Surface(const T* corner, const T* depths, const Range& range, V x, V y) {
        for (int k = 0; k < 3; ++k) {
            across[k] = corner[3 * k] - x * corner[3 * k + 2];
            up[k] = corner[3 * k + 1] - y * corner[3 * k + 2];
        }
        V volume[3], total = S::zero(), size = S::zero();
        for (int k = 0; k < 3; ++k) {
            const int a = (k + 1) % 3, b = (k + 2) % 3;
            const V one = across[a] * up[b], other = up[a] * across[b];
            volume[k] = one - other;
            total += volume[k];
            size += S::abs(one) + S::abs(other);
        }
        flat = S::abs(total) <= size * kRounding + Format<T>::smallest_normal;
        inverse = flat ? S::zero() : 1 / (flat ? S::set(1) : total);
        V sum = S::zero();
        for (int k = 0; k < 3; ++k) {
            const V raw = volume[k] * inverse;
            inside[k] = (raw >= 0) & (raw <= 1);
            share[k] = S::min(S::max(raw, S::zero()), S::set(1));
            sum += share[k];
        }
        scale = flat ? S::zero() : 1 / (flat ? S::set(1) : sum);
        depth = S::zero();
        for (int k = 0; k < 3; ++k) {
            weight[k] = flat ? S::set(T(1) / 3) : share[k] * scale;
            depth += weight[k] * depths[k];
        }
        const V held = S::min(S::max(depth, S::set(T(range.near))), S::set(T(range.far)));
        closeness = T(range.above) / (T(range.below) + held);
    }

    V color(const T* colors, int channel) const {
        return weight[0] * colors[channel] + weight[1] * colors[3 + channel] + weight[2] * colors[6 + channel];
    }

    // Gradients in corners (3, 3) and depths (3), given those in weights but for what comes by the depth, and in the
    // closeness.
    void pull(const T* depths, const Range& range, V x, V y, V (&by_weight)[3], V by_closeness, V (&by_corner)[9],
              V (&by_depth)[3]) const {
        const auto free = (depth >= T(range.near)) & (depth <= T(range.far));
        const V along = free ? by_closeness * closeness * closeness * T(-1 / range.above) : S::zero();
        V mean = S::zero();
        for (int k = 0; k < 3; ++k) {
            by_depth[k] = along * weight[k];
            by_weight[k] += along * depths[k];
            mean += by_weight[k] * weight[k];
        }
        V by_share[3], common = S::zero();
        for (int k = 0; k < 3; ++k) {
            by_share[k] = inside[k] ? (by_weight[k] - mean) * scale : S::zero();
            common += by_share[k] * share[k];
        }
        V by_across[3] = {S::zero(), S::zero(), S::zero()}, by_up[3] = {S::zero(), S::zero(), S::zero()};
        for (int k = 0; k < 3; ++k) {
            const int a = (k + 1) % 3, b = (k + 2) % 3;
            const V by_volume = (by_share[k] - common) * inverse;
            by_across[a] += by_volume * up[b];
            by_up[b] += by_volume * across[a];
            by_up[a] -= by_volume * across[b];
            by_across[b] -= by_volume * up[a];
        }
        for (int k = 0; k < 3; ++k) {
            by_corner[3 * k] = by_across[k];
            by_corner[3 * k + 1] = by_up[k];
            by_corner[3 * k + 2] = -(x * by_across[k] + y * by_up[k]);
        }
    }

  private:
    static constexpr T kRounding = sizeof(T) == 4 ? T(0x1p-19) : T(0x1p-48);
};

}  // namespace softly::SOFTLY_ISA
