// Newton's method on log(sum F(y - t)) - log k, kept inside a bracket that shrinks with every pass over the entries.
// In the logarithm the tails are nearly straight lines, so that a few passes do.
#include "selection/threshold.h"

#include <cmath>

#include "core/distributions.h"
#include "core/parallel.h"
#include "core/scratch.h"

namespace softly::SOFTLY_ISA {
namespace {

constexpr int64_t kChunk = 16384;

struct Sums {
    double members, density;
};

// Sums over y[begin .. end): in short stretches of vectors, so that single precision loses nothing that matters.
template <typename T, typename R>
Sums sums(const R& relaxation, const T* y, int64_t begin, int64_t end, T t) {
    using S = Simd<T>;
    constexpr int64_t width = S::width, stretch = 64 * width;
    Sums total{0, 0};
    for (int64_t from = begin; from < end; from += stretch) {
        const int64_t to = from + stretch < end ? from + stretch : end;
        typename S::V members = S::zero(), density = S::zero();
        int64_t i = from;
        for (; i + width <= to; i += width) {
            const auto swap = relaxation(t - S::load(y + i));
            members += swap.weight;
            density += swap.density;
        }
        for (int64_t lane = 0; lane < width; ++lane) {
            total.members += members[lane];
            total.density += density[lane];
        }
        for (; i < to; ++i) {
            const auto swap = relaxation(t - S::set(y[i]));
            total.members += swap.weight[0];
            total.density += swap.density[0];
        }
    }
    return total;
}

template <typename T, typename R>
T solve(const R& relaxation, const T* y, int64_t n, double k, double margin, Sums* parts, int threads) {
    T least = y[0], most = y[0];
    for (int64_t i = 1; i < n; ++i) {
        least = y[i] < least ? y[i] : least;
        most = y[i] > most ? y[i] : most;
    }
    const int64_t chunks = (n + kChunk - 1) / kChunk;
    const double tolerance = (sizeof(T) == 4 ? 1e-6 : 1e-14) * k;
    double low = least - margin, high = most + margin, t = high, before = HUGE_VAL;
    for (int pass = 0; pass < 100; ++pass) {
        parallel_for(chunks, 1, threads, [&](int64_t begin, int64_t end) {
            for (int64_t c = begin; c < end; ++c) {
                const int64_t to = (c + 1) * kChunk < n ? (c + 1) * kChunk : n;
                parts[c] = sums<T>(relaxation, y, c * kChunk, to, static_cast<T>(t));
            }
        });
        Sums total{0, 0};
        for (int64_t c = 0; c < chunks; ++c) {
            total.members += parts[c].members;
            total.density += parts[c].density;
        }
        const double surplus = total.members - k;
        if (!(std::fabs(surplus) > tolerance)) break;  // NaN ends here, too
        (surplus > 0 ? low : high) = t;
        if (!(high - low > (sizeof(T) == 4 ? 1e-7 : 1e-15) * (std::fabs(low) + std::fabs(high)))) break;
        const double ratio = std::log(total.members / k);
        const double newton = t + ratio * total.members / total.density;
        // A pass that has not halved the error is followed by a bisection.
        const bool slow = std::fabs(ratio) > 0.5 * before;
        before = slow ? HUGE_VAL : std::fabs(ratio);
        t = !slow && newton > low && newton < high ? newton : 0.5 * (low + high);
    }
    return static_cast<T>(t);
}

}  // namespace

template <typename T>
bool threshold(const T* y, T* out, int64_t rows, int64_t n, double k, double margin, int distribution, double art,
               int threads) {
    const int64_t chunks = (n + kChunk - 1) / kChunk;
    Enough enough;
    // Threads share the rows, or where there are few the entries of a row.
    const int across = rows >= threads ? threads : 1, within = rows >= threads ? 1 : threads;
    with_relaxation<T>(distribution, art, [&](const auto& relaxation) {
        parallel_for(rows, 1 + kChunk / n, across, [&](int64_t begin, int64_t end) {
            const Buffer<Sums> parts(chunks);
            if (!parts) return enough.fail();
            for (int64_t r = begin; r < end; ++r) {
                out[r] = solve<T>(relaxation, y + r * n, n, k, margin, parts.get(), within);
            }
        });
    });
    return enough;
}

template bool threshold(const float*, float*, int64_t, int64_t, double, double, int, double, int);
template bool threshold(const double*, double*, int64_t, int64_t, double, double, int, double, int);

}  // namespace softly::SOFTLY_ISA
