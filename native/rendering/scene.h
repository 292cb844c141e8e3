// The polygons of a call and how far from a pixel they matter, which forward and backward passes make ready alike.
//
// Boxes' distances bound from above what a polygon adds to a pixel, and as many polygons are dropped as together change
// the pixel by no more than an error that is fixed beforehand.
#pragma once

#include "core/parallel.h"
#include "core/scratch.h"
#include "rendering/aggregation.h"
#include "rendering/border.h"
#include "rendering/coverage.h"

namespace softly::SOFTLY_ISA {

constexpr int64_t kFacesAtOnce = 256;  // of a thread, where work is shared by faces
constexpr int kShells = 8;  // distances beyond which a polygon adds at most the budget / 8^j

template <typename T>
class Scene {
  public:
    using S = Simd<T>;
    using V = typename S::V;

    int64_t batch, faces, padded, corners, height, width;
    T unit;  // of a pixel
    Dial dial;
    Family<T> family;
    Aggregate<T> aggregate;
    T shells[kShells], costs[kShells];
    T square_budget, block_budget;

    Scene(const double* polygons, const uint8_t* seen, int64_t batch, int64_t faces, int64_t corners, int64_t height,
          int64_t width, const Dial& dial, int aggregation, double parameter, double error, int threads)
        : batch(batch),
          faces(faces),
          padded((faces + S::width - 1) / S::width * S::width),
          corners(corners),
          height(height),
          width(width),
          unit(T(2) / T(height < width ? height : width)),
          dial(dial),
          family(aggregation, parameter),
          aggregate(aggregate_of<T>(family.kind)),
          edges_(batch * padded * corners * kEdge),
          boxes_(batch * padded * 4) {
        if (!*this) return;
        prepare(polygons, seen, threads);
        find_shells(error);
    }

    // Whether there was memory.
    explicit operator bool() const { return edges_ && boxes_; }

    // Of an image, (padded, corners, kEdge).
    const T* edges(int64_t image) const { return edges_.get() + image * padded * corners * kEdge; }
    // Of an image, (4, padded): x from, x to, y from, y to.
    const T* boxes(int64_t image) const { return boxes_.get() + image * 4 * padded; }

    T column(int64_t x) const { return (T(x) + T(0.5) - T(width) / 2) * unit; }
    T row(int64_t y) const { return (T(height) / 2 - T(0.5) - T(y)) * unit; }

  private:
    Buffer<T> edges_, boxes_;

    void prepare(const double* polygons, const uint8_t* seen, int threads) {
        parallel_for(batch * padded, kFacesAtOnce, threads, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t image = i / padded, face = i % padded;
                T* box = boxes_.get() + image * 4 * padded + face;
                if (face >= faces) {
                    for (int side = 0; side < 4; ++side) box[side * padded] = 4 * kFar<T>;
                } else {
                    const int64_t at = image * faces + face;
                    T* edge = edges_.get() + i * corners * kEdge;
                    prepare_polygon(polygons + at * corners * 2, corners, !seen || seen[at], edge, box, padded);
                }
            }
        });
    }

    // The squared distances beyond which a polygon changes a state by no more than the costs.
    void find_shells(double error) {
        constexpr int rounded = (kShells + S::width - 1) / S::width * S::width, vectors = rounded / S::width;
        const auto cover = cover_of<T, false>(dial.family);
        const auto weight = aggregate.weight;
        // A small part of the budget is for what squares drop, the rest for what blocks do. Where the probability is 0
        // beyond an end, as of uniform distributions, nothing but that is dropped: their derivative doesn't fade
        // towards it.
        const double budget = ends_below(dial.family, dial.reversed) ? 0 : family.budget(error);
        T prices[rounded] = {};
        double cost = budget;
        for (int j = 0; j < kShells; ++j, cost /= 8) prices[j] = T(cost);
        square_budget = T(budget / 16);
        block_budget = T(budget * 15 / 16);
        T low[rounded], high[rounded];
        for (int j = 0; j < rounded; ++j) low[j] = -60, high[j] = 60;  // of the distance's logarithm
        for (int step = 0; step < 40; ++step) {
            for (int k = 0; k < vectors; ++k) {
                V a = S::load(low + k * S::width), b = S::load(high + k * S::width), p, q;
                const V middle = (a + b) * T(0.5);
                const V d = -S::exp(middle * T(0.69314718055994530942));
                cover(dial, &d, 1, &p, &q, nullptr);
                const auto enough = weight(family, p, q) <= S::load(prices + k * S::width);
                S::store(low + k * S::width, enough ? a : middle);
                S::store(high + k * S::width, enough ? middle : b);
            }
        }
        for (int j = 0; j < kShells; ++j) {
            const double distance = __builtin_exp2(high[j]) * 1.00001;
            shells[j] = high[j] > 59 ? kFar<T> * kFar<T> : T(distance * distance);
            costs[j] = prices[j];
        }
    }
};

}  // namespace softly::SOFTLY_ISA
