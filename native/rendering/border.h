// The distance of a point from the border of a polygon is the least of those from its edges, and within the polygon the
// least of those from their lines. With m the former and l the latter, positive inside, it is 2 max(l, 0) - m: inside m
// is l, and a point that seems to be inside of a sliver by rounding alone, where l is 0, is still outside.
//
// The distance changes as the closest point of the border moves: with its edge from a to b at the share t it is
// -(1 - t) r of a and -t r of b for the unit vector r from there to the pixel, negative outside. In the edge's own frame r
// is (line, over) / d, line along its normal and over along its direction, 0 but beyond its ends. So nothing is lost by
// cancellation where d is small, and at d = 0 the normal is taken. What is summed over pixels is in this frame.
#pragma once

#include "core/simd.h"

namespace softly::SOFTLY_ISA {

template <typename T>
constexpr T kFar = sizeof(T) == 4 ? T(1e18) : T(1e150);

// An edge: its beginning, direction, normal to the inside, length, and what keeps one without length from deciding what is
// inside, and from being faced.
enum : int { kAx, kAy, kTx, kTy, kNx, kNy, kLength, kAside, kEdge };

// The edges of a polygon made ready, kEdge numbers each, and its box: x from, x to, y from, y to, so far apart. Directions
// are of corners that are not rounded: rounding turns a short edge by so much that far away it faces other pixels.
template <typename T>
void prepare_polygon(const double* polygon, int64_t corners, bool seen, T* edge, T* box, int64_t stride) {
    double low[2] = {kFar<T>, kFar<T>}, high[2] = {-kFar<T>, -kFar<T>}, turn = 0;
    int long_ones = 0;
    for (int64_t k = 0; k < corners; ++k) {
        const double* a = polygon + 2 * k;
        const double* b = polygon + 2 * ((k + 1) % corners);
        for (int axis = 0; axis < 2; ++axis) {
            low[axis] = a[axis] < low[axis] ? a[axis] : low[axis];
            high[axis] = a[axis] > high[axis] ? a[axis] : high[axis];
        }
        const double ex = b[0] - a[0], ey = b[1] - a[1];
        long_ones += ex * ex + ey * ey > Format<T>::smallest_normal;
        turn += (a[0] - polygon[0]) * (b[1] - polygon[1]) - (a[1] - polygon[1]) * (b[0] - polygon[0]);
    }
    const double sign = turn < 0 ? -1 : 1;
    // A polygon that is a point has normals to either side, so that nothing is inside.
    const bool point = long_ones < 2;
    for (int64_t k = 0; k < corners; ++k, edge += kEdge) {
        const double* a = polygon + 2 * k;
        const double* b = polygon + 2 * ((k + 1) % corners);
        const double ex = b[0] - a[0], ey = b[1] - a[1], square = ex * ex + ey * ey;
        const bool single = point || !(square > Format<T>::smallest_normal);
        const double length = single ? 0 : __builtin_sqrt(square), inverse = single ? 0 : 1 / length;
        const double tx = single ? (k % 2 ? -1 : 1) : ex * inverse, ty = single ? 0 : ey * inverse;
        edge[kAx] = T(a[0]);
        edge[kAy] = T(a[1]);
        edge[kTx] = T(tx);
        edge[kTy] = T(ty);
        edge[kNx] = T(-sign * ty);
        edge[kNy] = T(sign * tx);
        edge[kLength] = T(length);
        edge[kAside] = single && !point ? kFar<T> : T(0);
    }
    // Nothing is close to the box of what isn't seen.
    box[0] = seen ? T(low[0]) : 4 * kFar<T>;
    box[stride] = seen ? T(high[0]) : 4 * kFar<T>;
    box[2 * stride] = seen ? T(low[1]) : 4 * kFar<T>;
    box[3 * stride] = seen ? T(high[1]) : 4 * kFar<T>;
}

// The signed distance of points, and where on the border of a polygon they are closest to it.
template <typename T>
struct Border {
    using S = Simd<T>;
    using V = typename S::V;

    template <int corners>
    static V distance(const T* edge, V x, V y) {
        V least = S::set(kFar<T> * kFar<T>), low = S::set(kFar<T>);
#pragma GCC unroll 6
        for (int k = 0; k < corners; ++k, edge += kEdge) {
            const V ux = x - edge[kAx], uy = y - edge[kAy];
            const V along = ux * edge[kTx] + uy * edge[kTy], line = ux * edge[kNx] + uy * edge[kNy];
            const V over = along - S::min(S::max(along, S::zero()), S::set(edge[kLength]));
            least = S::min(least, line * line + over * over);
            low = S::min(low, corners > 3 ? line + edge[kAside] : line);
        }
        return 2 * S::max(low, S::zero()) - S::sqrt(least);
    }

    // Where the closest point of the border is, too: the edge's number, and in its frame.
    struct Foot {
        V d, number, line, over, along;
    };

    // An edge that a point faces, beside it and outside, is the closest of a convex polygon: whatever seems closer does so by
    // rounding, as the end of a short edge from afar, or the other side of a sliver.
    template <int corners>
    static Foot foot(const T* edge, V x, V y) {
        V least = S::set(kFar<T> * kFar<T>), low = S::set(kFar<T>);
        V number = S::zero(), line = S::set(kFar<T>), over = S::zero(), along = S::zero();
#pragma GCC unroll 6
        for (int k = 0; k < corners; ++k, edge += kEdge) {
            const V ux = x - edge[kAx], uy = y - edge[kAy];
            const V at = ux * edge[kTx] + uy * edge[kTy], from = ux * edge[kNx] + uy * edge[kNy];
            const V held = S::min(S::max(at, S::zero()), S::set(edge[kLength])), beyond = at - held;
            const V square = from * from + beyond * beyond,
                    rank = (beyond == 0) & (from + edge[kAside] < 0) ? square : 2 * square;
            const auto closer = rank < least;
            least = S::min(rank, least);
            number = closer ? S::set(T(k)) : number;
            line = closer ? from : line;
            over = closer ? beyond : over;
            along = closer ? held : along;
            low = S::min(low, corners > 3 ? from + edge[kAside] : from);
        }
        return {2 * S::max(low, S::zero()) - S::sqrt(line * line + over * over), number, line, over, along};
    }

    // Sums over pixels of how a distance, times w, changes with its edge: of line and over by d, and both times along.
    template <int corners>
    struct Sums {
        V total[corners][4];
        Sums() {
            for (auto& edge : total) {
                for (V& sum : edge) sum = S::zero();
            }
        }

        void add(V w, V d, V number, V line, V over, V along) {
            const auto on = d == 0;
            const V inverse = -w / (on ? S::set(1) : d);
            line = on ? -w : inverse * line;
            over = on ? S::zero() : inverse * over;
            const V line_along = line * along, over_along = over * along;
            for (int k = 0; k < corners; ++k) {
                const auto here = number == T(k);
                total[k][0] = here ? total[k][0] + line : total[k][0];
                total[k][1] = here ? total[k][1] + line_along : total[k][1];
                total[k][2] = here ? total[k][2] + over : total[k][2];
                total[k][3] = here ? total[k][3] + over_along : total[k][3];
            }
        }

        // Adds them to those of the polygon, (corners, 4).
        void store(T* to) const {
            for (int k = 0; k < corners; ++k, to += 4) {
                S::add_sums(total[k][0], total[k][1], total[k][2], total[k][3], to, to + 2);
            }
        }
    };

    // From `parts` sums in the edges' frames, so far apart, to the gradient in the corners.
    template <int corners>
    static void finish(const T* edge, const T* sums, int64_t parts, int64_t stride, T* grad) {
        for (int k = 0; k < 2 * corners; ++k) grad[k] = 0;
        for (int k = 0; k < corners; ++k, edge += kEdge) {
            T total[4] = {};
            for (int64_t part = 0; part < parts; ++part) {
                for (int i = 0; i < 4; ++i) total[i] += sums[part * stride + 4 * k + i];
            }
            const T inverse = edge[kLength] > 0 ? 1 / edge[kLength] : T(0);
            const T line[2] = {total[0] - total[1] * inverse, total[1] * inverse};
            const T over[2] = {total[2] - total[3] * inverse, total[3] * inverse};
            for (int end = 0; end < 2; ++end) {
                T* to = grad + 2 * ((k + end) % corners);
                to[0] += line[end] * edge[kNx] + over[end] * edge[kTx];
                to[1] += line[end] * edge[kNy] + over[end] * edge[kTy];
            }
        }
    }
};

}  // namespace softly::SOFTLY_ISA
