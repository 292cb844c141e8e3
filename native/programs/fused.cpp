// A vector holds the same cell of several examples, so that a cell never waits for its neighbour within a vector.
#include "programs/fused.h"

#include <cstring>

#include "core/parallel.h"
#include "core/scratch.h"
#include "core/simd.h"

namespace softly::SOFTLY_ISA {
namespace {

template <typename T>
using V = typename Simd<T>::V;

constexpr double kFar = 1e9;

// Rows of a batch, seen through a window of one vector; beyond the end of the batch the last example repeats.
template <typename T>
struct Window {
    int64_t batch, begin, filled;

    Window(int64_t size, int64_t block) : batch(size), begin(block * Simd<T>::width) {
        filled = batch - begin < Simd<T>::width ? batch - begin : Simd<T>::width;
    }
    V<T> load(const T* rows, int64_t row) const {
        const T* from = rows + row * batch + begin;
        if (filled == Simd<T>::width) return Simd<T>::load(from);
        V<T> value;
        for (int k = 0; k < Simd<T>::width; ++k) value[k] = from[k < filled ? k : filled - 1];
        return value;
    }
    V<T> load_grad(const T* rows, int64_t row) const {
        V<T> value = load(rows, row);
        for (int64_t k = filled; k < Simd<T>::width; ++k) value[k] = 0;
        return value;
    }
    void store(T* rows, int64_t row, V<T> value) const {
        T* to = rows + row * batch + begin;
        if (filled == Simd<T>::width) return Simd<T>::store(to, value);
        for (int64_t k = 0; k < filled; ++k) to[k] = value[k];
    }
};

// The softmin of up to eight values: their weights, and their mean under them.
template <typename T>
struct Softmin {
    using S = Simd<T>;
    V<T> weight[8], mean;

    Softmin(const V<T>* x, int count, T steepness) {
        V<T> least = x[0];
        for (int k = 1; k < count; ++k) least = S::min(x[k], least);
        V<T> total = S::zero(), sum = S::zero();
        for (int k = 0; k < count; ++k) {
            weight[k] = S::exp((least - x[k]) * steepness);
            total += weight[k];
            sum += weight[k] * x[k];
        }
        const V<T> inverse = 1 / total;
        mean = sum * inverse;
        for (int k = 0; k < count; ++k) weight[k] *= inverse;
    }
    // The derivative of the mean in x[k].
    V<T> slope(const V<T>* x, int k, T steepness) const { return weight[k] * (1 - steepness * (x[k] - mean)); }
};

template <typename T, typename F>
bool over_blocks(int64_t batch, size_t vectors, int threads, F body) {
    Enough enough;
    const int64_t blocks = (batch + Simd<T>::width - 1) / Simd<T>::width;
    parallel_for(blocks, 1, threads, [&](int64_t begin, int64_t end) {
        V<T>* memory = static_cast<V<T>*>(scratch(vectors * sizeof(V<T>)));
        if (memory == nullptr) {
            return enough.fail();
        }
        for (int64_t block = begin; block < end; ++block) body(Window<T>(batch, block), memory);
    });
    return enough;
}

template <typename T>
void fill_distances(const Window<T>& window, const T* costs, V<T>* d, int64_t n, int64_t m, T steepness) {
    for (int64_t i = 0; i <= n; ++i) d[i * (m + 1)] = Simd<T>::set(T(i));
    for (int64_t j = 0; j <= m; ++j) d[j] = Simd<T>::set(T(j));
    for (int64_t i = 1; i <= n; ++i) {
        V<T>*row = d + i * (m + 1), *above = row - (m + 1);
        for (int64_t j = 1; j <= m; ++j) {
            const V<T> x[3] = {above[j] + 1, row[j - 1] + 1, above[j - 1] + window.load(costs, (i - 1) * m + j - 1)};
            row[j] = Softmin<T>(x, 3, steepness).mean;
        }
    }
}

// The cells around cell v of a grid, row by row.
inline int neighbours(int64_t v, int64_t h, int64_t w, int64_t* found) {
    const int64_t i = v / w, j = v % w;
    int count = 0;
    for (int64_t a = i > 0 ? i - 1 : 0; a <= i + 1 && a < h; ++a) {
        for (int64_t b = j > 0 ? j - 1 : 0; b <= j + 1 && b < w; ++b) {
            if (a != i || b != j) found[count++] = a * w + b;
        }
    }
    return count;
}

template <typename T>
int gather(const V<T>* distance, int64_t v, int64_t h, int64_t w, int64_t* around, V<T>* x) {
    const int count = neighbours(v, h, w, around);
    for (int k = 0; k < count; ++k) x[k] = distance[around[k]];
    return count;
}

// One round of the distances, from those of the round before.
template <typename T>
void advance(const V<T>* before, V<T>* after, const V<T>* cost, int64_t h, int64_t w, T steepness) {
    after[0] = before[0];
    for (int64_t v = 1; v < h * w; ++v) {
        int64_t around[8];
        V<T> x[8];
        const int count = gather<T>(before, v, h, w, around, x);
        after[v] = Softmin<T>(x, count, steepness).mean + cost[v];
    }
}

// How likely each cell comes before a cell, 8 a cell.
template <typename T>
void shares(const V<T>* distance, V<T>* share, int64_t h, int64_t w, T steepness) {
    for (int64_t v = 1; v < h * w; ++v) {
        int64_t around[8];
        V<T> x[8];
        const int count = gather<T>(distance, v, h, w, around, x);
        const Softmin<T> least(x, count, steepness);
        for (int k = 0; k < count; ++k) share[v * 8 + k] = least.weight[k];
    }
}

// A step back along the path.
template <typename T>
void retreat(const V<T>* mass, V<T>* next, const V<T>* share, int64_t h, int64_t w) {
    for (int64_t v = 0; v < h * w; ++v) next[v] = Simd<T>::zero();
    next[0] = mass[0];
    for (int64_t v = 1; v < h * w; ++v) {
        int64_t around[8];
        const int count = neighbours(v, h, w, around);
        for (int k = 0; k < count; ++k) next[around[k]] += mass[v] * share[v * 8 + k];
    }
}

}  // namespace

template <typename T>
bool levenshtein(const T* costs, T* distances, int64_t n, int64_t m, int64_t batch, double steepness, int threads) {
    SOFTLY_NARROWER_IF(2 * batch <= threads * Simd<T>::width, levenshtein, costs, distances, n, m, batch, steepness,
                       threads);
    const int64_t cells = (n + 1) * (m + 1);
    return over_blocks<T>(batch, cells, threads, [&](const Window<T>& window, V<T>* d) {
        fill_distances<T>(window, costs, d, n, m, T(steepness));
        for (int64_t c = 0; c < cells; ++c) window.store(distances, c, d[c]);
    });
}

template <typename T>
bool levenshtein_backward(const T* costs, const T* grad, T* grad_costs, int64_t n, int64_t m, int64_t batch,
                          double steepness, int threads) {
    SOFTLY_NARROWER_IF(2 * batch <= threads * Simd<T>::width, levenshtein_backward, costs, grad, grad_costs, n, m,
                       batch, steepness, threads);
    const int64_t cells = (n + 1) * (m + 1);
    return over_blocks<T>(batch, 2 * cells, threads, [&](const Window<T>& window, V<T>* d) {
        fill_distances<T>(window, costs, d, n, m, T(steepness));
        V<T>* adjoint = d + cells;
        for (int64_t c = 0; c < cells; ++c) adjoint[c] = window.load_grad(grad, c);
        for (int64_t i = n; i >= 1; --i) {
            for (int64_t j = m; j >= 1; --j) {
                const int64_t at = i * (m + 1) + j, above = at - (m + 1), cost = (i - 1) * m + j - 1;
                const V<T> x[3] = {d[above] + 1, d[at - 1] + 1, d[above - 1] + window.load(costs, cost)};
                const Softmin<T> least(x, 3, T(steepness));
                const V<T> g = adjoint[at];
                adjoint[above] += g * least.slope(x, 0, T(steepness));
                adjoint[at - 1] += g * least.slope(x, 1, T(steepness));
                const V<T> diagonal = g * least.slope(x, 2, T(steepness));
                adjoint[above - 1] += diagonal;
                window.store(grad_costs, cost, diagonal);
            }
        }
    });
}

template <typename T>
bool shortest_path(const T* costs, T* out, int64_t h, int64_t w, int64_t rounds, int64_t batch, double steepness,
                   int threads) {
    SOFTLY_NARROWER_IF(2 * batch <= threads * Simd<T>::width, shortest_path, costs, out, h, w, rounds, batch, steepness,
                       threads);
    using S = Simd<T>;
    const int64_t n = h * w;
    return over_blocks<T>(batch, 14 * n, threads, [&](const Window<T>& window, V<T>* memory) {
        V<T>*cost = memory, *distance = cost + n, *other = distance + n, *share = other + n, *mass = share + 8 * n,
        *next = mass + n, *absent = next + n;
        for (int64_t v = 0; v < n; ++v) {
            cost[v] = window.load(costs, v);
            distance[v] = S::set(T(kFar));
            mass[v] = S::zero();
            absent[v] = S::set(1);
        }
        distance[0] = cost[0];
        mass[n - 1] = S::set(1);
        for (int64_t r = 0; r < rounds; ++r) {
            advance<T>(distance, other, cost, h, w, T(steepness));
            V<T>* swap = distance;
            distance = other;
            other = swap;
        }
        shares<T>(distance, share, h, w, T(steepness));
        for (int64_t r = 0; r <= rounds; ++r) {
            for (int64_t v = 0; v < n; ++v) absent[v] *= 1 - mass[v];
            if (r == rounds) break;
            retreat<T>(mass, next, share, h, w);
            V<T>* swap = mass;
            mass = next;
            next = swap;
        }
        for (int64_t v = 0; v < n; ++v) {
            window.store(out, v, 1 - absent[v]);
            window.store(out, n + v, distance[v]);
        }
    });
}

template <typename T>
bool shortest_path_backward(const T* costs, const T* grad, T* grad_costs, int64_t h, int64_t w, int64_t rounds,
                            int64_t batch, double steepness, int threads) {
    SOFTLY_NARROWER_IF(2 * batch <= threads * Simd<T>::width, shortest_path_backward, costs, grad, grad_costs, h, w,
                       rounds, batch, steepness, threads);
    using S = Simd<T>;
    const T beta = T(steepness);
    const int64_t n = h * w, history = (rounds + 1) * n;
    return over_blocks<T>(batch, 3 * history + 21 * n, threads, [&](const Window<T>& window, V<T>* memory) {
        V<T>*distances = memory, *masses = distances + history, *absents = masses + history, *cost = absents + history,
        *share = cost + n, *d_share = share + 8 * n, *d_now = d_share + 8 * n, *d_before = d_now + n,
        *d_absent = d_before + n, *d_cost = d_absent + n;
        for (int64_t v = 0; v < n; ++v) {
            cost[v] = window.load(costs, v);
            distances[v] = S::set(T(kFar));
            masses[v] = S::zero();
            absents[v] = S::set(1);
            d_cost[v] = S::zero();
        }
        distances[0] = cost[0];
        masses[n - 1] = S::set(1);
        for (int64_t r = 0; r < rounds; ++r) {
            advance<T>(distances + r * n, distances + (r + 1) * n, cost, h, w, beta);
        }
        shares<T>(distances + rounds * n, share, h, w, beta);
        for (int64_t r = 0; r < rounds; ++r) {
            for (int64_t v = 0; v < n; ++v) absents[(r + 1) * n + v] = absents[r * n + v] * (1 - masses[r * n + v]);
            retreat<T>(masses + r * n, masses + (r + 1) * n, share, h, w);
        }
        // Along the path, from its far end.
        for (int64_t v = 0; v < n; ++v) {
            d_absent[v] = -window.load_grad(grad, v);
            d_now[v] = S::zero();
        }
        for (int64_t k = 0; k < 8 * n; ++k) d_share[k] = S::zero();
        for (int64_t r = rounds; r >= 0; --r) {
            const V<T>*mass = masses + r * n, *absent = absents + r * n;
            // d_now is the adjoint of the masses of round r + 1.
            for (int64_t v = 0; v < n; ++v) d_before[v] = -d_absent[v] * absent[v];
            if (r < rounds) {
                d_before[0] += d_now[0];
                for (int64_t v = 1; v < n; ++v) {
                    int64_t around[8];
                    const int count = neighbours(v, h, w, around);
                    for (int k = 0; k < count; ++k) {
                        d_before[v] += share[v * 8 + k] * d_now[around[k]];
                        d_share[v * 8 + k] += mass[v] * d_now[around[k]];
                    }
                }
            }
            for (int64_t v = 0; v < n; ++v) d_absent[v] *= 1 - mass[v];
            V<T>* swap = d_now;
            d_now = d_before;
            d_before = swap;
        }
        // Into the distances, and back through the rounds.
        for (int64_t v = 0; v < n; ++v) d_now[v] = window.load_grad(grad, n + v);
        for (int64_t v = 1; v < n; ++v) {
            int64_t around[8];
            const int count = neighbours(v, h, w, around);
            V<T> mean = S::zero();
            for (int k = 0; k < count; ++k) mean += share[v * 8 + k] * d_share[v * 8 + k];
            for (int k = 0; k < count; ++k) {
                d_now[around[k]] -= beta * share[v * 8 + k] * (d_share[v * 8 + k] - mean);
            }
        }
        for (int64_t r = rounds; r >= 1; --r) {
            const V<T>* before = distances + (r - 1) * n;
            for (int64_t v = 0; v < n; ++v) d_before[v] = S::zero();
            d_before[0] = d_now[0];
            for (int64_t v = 1; v < n; ++v) {
                d_cost[v] += d_now[v];
                int64_t around[8];
                V<T> x[8];
                const int count = gather<T>(before, v, h, w, around, x);
                const Softmin<T> least(x, count, beta);
                for (int k = 0; k < count; ++k) d_before[around[k]] += d_now[v] * least.slope(x, k, beta);
            }
            V<T>* swap = d_now;
            d_now = d_before;
            d_before = swap;
        }
        d_cost[0] += d_now[0];
        for (int64_t v = 0; v < n; ++v) window.store(grad_costs, v, d_cost[v]);
    });
}

#define SOFTLY_INSTANTIATE(T)                                                                                        \
    template bool levenshtein(const T*, T*, int64_t, int64_t, int64_t, double, int);                                 \
    template bool levenshtein_backward(const T*, const T*, T*, int64_t, int64_t, int64_t, double, int);              \
    template bool shortest_path(const T*, T*, int64_t, int64_t, int64_t, int64_t, double, int);                      \
    template bool shortest_path_backward(const T*, const T*, T*, int64_t, int64_t, int64_t, int64_t, double, int);
SOFTLY_INSTANTIATE(float)
SOFTLY_INSTANTIATE(double)

}  // namespace softly::SOFTLY_ISA
