// Which faces can have a part in the colours of which pixels.
//
// A face has log p + sharpness (closeness - that of the background) at a pixel, and with it the share exp of that, by all
// shares and 1 for the background. Boxes bound how much it covers and depths of corners how close it is, so that what is
// below the best of a pixel by so much that all of it is no more than `dropped` need not be looked at. Probabilities up to
// kLeast are 0 here, in single as in double precision.
#pragma once

#include "rendering/surface.h"
#include "rendering/tiles.h"

namespace softly::SOFTLY_ISA {

constexpr double kBehind = 1e-3;  // the closeness of the background
constexpr double kLeast = 1e-37;
template <typename T>
constexpr T kNowhere = sizeof(T) == 4 ? T(-1e30) : T(-1e300);  // of what is not there

template <typename T>
struct Layers : Tiles<T> {
    using Base = Tiles<T>;
    using Base::scene;
    using Base::vectors;
    using Base::width;
    using typename Base::S;
    using typename Base::V;

    const T* corners;
    const T* depths;
    const T* colors;
    Range range;
    T sharpness, slack;
    Cover<T> cover, cover_slope;
    T* reach;  // (batch, 2, padded): sharpness (closeness - kBehind) at most and at least

    Layers(const Scene<T>& scene, const T* corners, const T* depths, const T* colors, const uint8_t* seen, Range range,
           double sharpness, double dropped, T* reach)
        : Base{scene},
          corners(corners),
          depths(depths),
          colors(colors),
          range(range),
          sharpness(T(sharpness)),
          slack(T(__builtin_log(double(scene.faces + 1) / dropped))),
          cover(cover_of<T, false>(scene.dial.family)),
          cover_slope(cover_of<T, true>(scene.dial.family)),
          reach(reach) {
        for (int64_t i = 0; i < scene.batch * scene.padded; ++i) {
            const int64_t image = i / scene.padded, face = i % scene.padded, at = image * scene.faces + face;
            T* to = reach + image * 2 * scene.padded + face;
            to[0] = to[scene.padded] = kNowhere<T>;
            if (face >= scene.faces || (seen && !seen[at])) continue;
            const T* z = depths + 3 * at;
            T low = z[0], high = z[0];
            for (int k = 1; k < 3; ++k) low = z[k] < low ? z[k] : low, high = z[k] > high ? z[k] : high;
            to[0] = T(sharpness) * (range.closeness(low) - T(kBehind));
            to[scene.padded] = T(sharpness) * (range.closeness(high) - T(kBehind));
        }
    }

    static V log(V x) {
        typename S::Mask exponent;
        const V reduced = S::log_reduced(x, exponent);
        return reduced + S::to_float(exponent) * T(0.69314718055994530942);
    }

    // log p, and kNowhere where that is nothing.
    static V log_of(V p) {
        const auto there = p > T(kLeast);
        return there ? log(there ? p : S::set(1)) : S::set(kNowhere<T>);
    }

    // The memory of a thread.
    struct Bench {
        T *boxes, *reach, *most;  // of the faces that are near: (4, padded), (padded), and what they can have at most
        int32_t* near;
        static size_t bytes(int64_t padded) { return static_cast<size_t>(padded) * (6 * sizeof(T) + sizeof(int32_t)); }
        Bench(char* memory, int64_t padded) {
            boxes = reinterpret_cast<T*>(memory);
            reach = boxes + 4 * padded;
            most = reach + padded;
            near = reinterpret_cast<int32_t*>(most + padded);
        }
    };

    // What faces have at most within a rectangle.
    V at_most(const T* boxes, int64_t stride, const T* reach, T x0, T x1, T y0, T y1) const {
        const V dx = S::max(S::max(S::load(boxes) - x1, x0 - S::load(boxes + stride)), S::zero());
        const V dy = S::max(S::max(S::load(boxes + 2 * stride) - y1, y0 - S::load(boxes + 3 * stride)), S::zero());
        const V square = dx * dx + dy * dy, d = -S::sqrt(square);
        V p, q;
        cover(scene.dial, &d, 1, &p, &q, nullptr);
        return (square > 0 ? log_of(p) : S::zero()) + S::load(reach);
    }

    // And at least.
    V at_least(const T* boxes, int64_t stride, const T* reach, T x0, T x1, T y0, T y1) const {
        const V dx = S::max(x1 - S::load(boxes), S::load(boxes + stride) - x0);
        const V dy = S::max(y1 - S::load(boxes + 2 * stride), S::load(boxes + 3 * stride) - y0);
        const V d = -S::sqrt(dx * dx + dy * dy);
        V p, q;
        cover(scene.dial, &d, 1, &p, &q, nullptr);
        return log_of(p) + S::load(reach);
    }

    // The faces that may be seen in a square of pixels, and how many.
    int64_t gather_square(int64_t image, int64_t x, int64_t y, Bench& bench) const {
        const int64_t padded = scene.padded;
        const T* boxes = scene.boxes(image);
        const T* own = reach + image * 2 * padded;
        const int64_t right = x + kSquare < scene.width ? x + kSquare : scene.width;
        const int64_t bottom = y + kSquare < scene.height ? y + kSquare : scene.height;
        const T x0 = scene.column(x), x1 = scene.column(right - 1), y0 = scene.row(bottom - 1), y1 = scene.row(y);
        V best = S::zero();  // of the background
        for (int64_t i = 0; i < padded; i += width) {
            S::store(bench.most + i, at_most(boxes + i, padded, own + i, x0, x1, y0, y1));
            best = S::max(best, at_least(boxes + i, padded, own + padded + i, x0, x1, y0, y1));
        }
        T limit = 0;
        for (int lane = 0; lane < width; ++lane) limit = best[lane] > limit ? best[lane] : limit;
        limit -= slack;
        int64_t count = 0;
        for (int64_t i = 0; i < padded; i += width) {
            for (uint32_t bits = S::bits(S::load(bench.most + i) >= limit); bits; bits &= bits - 1) {
                const int64_t f = i + __builtin_ctz(bits);
                bench.near[count] = static_cast<int32_t>(f);
                bench.reach[count] = own[f];
                for (int side = 0; side < 4; ++side) bench.boxes[side * padded + count] = boxes[side * padded + f];
                ++count;
            }
        }
        for (int64_t i = count; i % width; ++i) {
            bench.near[i] = 0;
            bench.reach[i] = kNowhere<T>;
            for (int side = 0; side < 4; ++side) bench.boxes[side * padded + i] = 4 * kFar<T>;
        }
        return count;
    }

    // What they have at most in a block, and which has most.
    int64_t bound_block(int64_t x, int64_t y, int64_t count, Bench& bench) const {
        const T x0 = scene.column(x), x1 = scene.column(x + kBlock - 1);
        const T y0 = scene.row(y + kBlock - 1), y1 = scene.row(y);
        int64_t first = 0;
        for (int64_t i = 0; i < count; i += width) {
            const V most = at_most(bench.boxes + i, scene.padded, bench.reach + i, x0, x1, y0, y1);
            S::store(bench.most + i, most);
            for (uint32_t bits = S::bits(most > bench.most[first]); bits; bits &= bits - 1) {
                const int64_t f = i + __builtin_ctz(bits);
                if (bench.most[f] > bench.most[first]) first = f;
            }
        }
        return first;
    }

    static T least(const V* values, int count) {
        T result = values[0][0];
        for (int k = 0; k < count; ++k) {
            for (int lane = 0; lane < width; ++lane) result = values[k][lane] < result ? values[k][lane] : result;
        }
        return result;
    }
};

}  // namespace softly::SOFTLY_ISA
