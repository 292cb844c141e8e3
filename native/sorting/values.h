// The values of comparator networks and their gradients, with a vector of samples per wire: what kernels begin with,
// whatever they compute from the swaps.
#pragma once

#include <cstring>

#include "core/distributions.h"
#include "core/parallel.h"
#include "core/scratch.h"
#include "sorting/plan.h"

namespace softly::SOFTLY_ISA {
namespace {

template <typename T>
T smaller(T a, T b) {
    return b < a ? b : a;
}

// How many of `count` pieces of `cost` vector operations make up a task that is worth a thread's attention.
int64_t grain(int64_t cost) {
    constexpr int64_t task = 1 << 15;
    return cost >= task ? 1 : task / (cost + 1);
}

// Rows of up to `width` samples, which vectors take across --------------------------------------------------------

template <typename T>
struct Block {
    using S = Simd<T>;
    using V = typename S::V;
    static constexpr int width = S::width;

    T* rows[width];
    int count;  // the samples that there are; the others repeat the last one, and are never stored

    Block(const T* first, int64_t stride, int64_t samples) : count(static_cast<int>(smaller<int64_t>(samples, width))) {
        for (int lane = 0; lane < width; ++lane) {
            rows[lane] = const_cast<T*>(first) + smaller(lane, count - 1) * stride;
        }
    }

    // Columns begin to begin + columns - 1 of all rows, each as a vector.
    void load(int64_t begin, int columns, V (&to)[width]) const {
        if (columns == width) {
            for (int lane = 0; lane < width; ++lane) to[lane] = S::load(rows[lane] + begin);
            S::transpose(to);
            return;
        }
        for (int column = 0; column < columns; ++column) {
            for (int lane = 0; lane < width; ++lane) to[column][lane] = rows[lane][begin + column];
        }
    }
    void store(int64_t begin, int columns, V (&from)[width]) const {
        if (columns == width) {
            S::transpose(from);
            for (int lane = 0; lane < count; ++lane) S::store(rows[lane] + begin, from[lane]);
            return;
        }
        for (int column = 0; column < columns; ++column) {
            for (int lane = 0; lane < count; ++lane) rows[lane][begin + column] = from[column][lane];
        }
    }
};

// Calls f(begin, columns) on pieces of `width` columns.
template <int width, typename F>
void pieces(int64_t total, F&& f) {
    for (int64_t begin = 0; begin < total; begin += width) {
        f(begin, static_cast<int>(smaller<int64_t>(width, total - begin)));
    }
}

// x (batch, columns) to one vector per column, placed by index; and back.
template <typename T>
void gather(const Block<T>& x, int64_t columns, const int32_t* index, typename Simd<T>::V* y) {
    constexpr int width = Simd<T>::width;
    pieces<width>(columns, [&](int64_t begin, int count) {
        typename Simd<T>::V square[width];
        x.load(begin, count, square);
        for (int k = 0; k < count; ++k) y[index ? index[begin + k] : begin + k] = square[k];
    });
}

template <typename T>
void scatter(const typename Simd<T>::V* y, int64_t columns, const int32_t* index, const Block<T>& out) {
    constexpr int width = Simd<T>::width;
    pieces<width>(columns, [&](int64_t begin, int count) {
        typename Simd<T>::V square[width];
        for (int k = 0; k < count; ++k) square[k] = y[index ? index[begin + k] : begin + k];
        out.store(begin, count, square);
    });
}

// The values, forwards ----------------------------------------------------------------------------------------------

// Runs the network on y, a vector of samples per wire, and hands what every comparator did to sink(comparator, swap).
template <typename T, typename R, typename Sink>
void forward_block(const SortingPlan& plan, const R& relaxation, typename Simd<T>::V* y, Sink&& sink) {
    using S = Simd<T>;
    using V = typename S::V;
    struct Begun {
        V a, b, d, half;
    };
    const int32_t* const wires = plan.wires;
    const auto begin = [&](int32_t c) {
        const V a = y[wires[2 * c]], b = y[wires[2 * c + 1]];
        return Begun{a, b, b - a, relaxation.begin(b - a)};
    };
    const auto finish = [&](int32_t c, const Begun& begun) {
        const V a = begun.a, b = begun.b;
        const Swap<T> swap = relaxation.finish(begun.d, begun.half);
        y[wires[2 * c]] = S::min(a, b) + swap.blur;
        y[wires[2 * c + 1]] = S::max(a, b) - swap.blur;
        sink(c, swap);
    };
    for (int32_t l = 0; l < plan.depth; ++l) {
        const int32_t last = plan.layers[l + 1] - 1;
        Begun next = begin(plan.layers[l]);
        for (int32_t c = plan.layers[l]; c <= last; ++c) {
            const Begun begun = next;
            next = begin(smaller(c + 1, last));  // the last one again, for nothing
            finish(c, begun);
        }
    }
}

// The same for a single sample, with vectors over the comparators of a layer.
template <typename T, typename R, typename Sink>
void forward_single(const SortingPlan& plan, const R& relaxation, T* y, Sink&& sink) {
    using V = typename Simd<T>::V;
    constexpr int width = Simd<T>::width;
    for (int32_t l = 0; l < plan.depth; ++l) {
        for (int32_t c = plan.layers[l]; c < plan.layers[l + 1]; c += width) {
            const int count = smaller(width, plan.layers[l + 1] - c);
            const int32_t* wires = plan.wires + 2 * c;
            V a{}, b{};
            for (int k = 0; k < count; ++k) a[k] = y[wires[2 * k]], b[k] = y[wires[2 * k + 1]];
            const V d = b - a;
            const Swap<T> swap = relaxation(d);
            const V low = Simd<T>::min(a, b) + swap.blur, high = Simd<T>::max(a, b) - swap.blur;
            for (int k = 0; k < count; ++k) y[wires[2 * k]] = low[k], y[wires[2 * k + 1]] = high[k];
            sink(c, count, swap);
        }
    }
}

template <typename T>
void store_part(T* to, int count, typename Simd<T>::V value) {
    if (count == Simd<T>::width) return Simd<T>::store(to, value);
    for (int k = 0; k < count; ++k) to[k] = value[k];
}

// Collects a vector of samples per comparator and stores it as rows, one per sample.
template <typename T>
struct Collector {
    static constexpr int width = Simd<T>::width;
    Block<T> rows;
    typename Simd<T>::V square[width];

    void put(int32_t c, int32_t size, typename Simd<T>::V value) {
        const int k = c % width;
        square[k] = value;
        if (k == width - 1 || c == size - 1) rows.store(c - k, k + 1, square);
    }
};

// What single samples gain over a block that is mostly empty.
constexpr int single_samples = 2;

// How comparators swap. The kernels work on y = steepness * x.
struct Swapping {
    int distribution;
    double art, steepness;
};

// The network's values and, by arrays that may be null: slopes in the layout of network_values, or tails,
// densities and slopes as rows of `stride` per sample.
template <typename T>
struct Outcome {
    T* out;
    T* direct;
    T *tails, *densities, *slopes;
    int64_t stride;
};

template <typename T>
bool forward(const SortingPlan& plan, const Swapping& swapping, const T* x, const Outcome<T>& to, int64_t batch,
             int threads) {
    using V = typename Simd<T>::V;
    constexpr int width = Simd<T>::width;
    const int64_t n = plan.n, size = plan.size, blocks = (batch + width - 1) / width;
    Enough enough;
    const T steepness = static_cast<T>(swapping.steepness);
    with_relaxation<T>(swapping.distribution, swapping.art, [&](const auto& relaxation) {
        parallel_for(blocks, grain(16 * size), threads, [&](int64_t begin, int64_t end) {
            V* y = static_cast<V*>(scratch(n * sizeof(V)));
            if (y == nullptr) return enough.fail();
            for (int64_t block = begin; block < end; ++block) {
                const int64_t sample = block * width, samples = smaller<int64_t>(width, batch - sample);
                T* rows[] = {to.tails, to.densities, to.slopes};
                if (to.direct != nullptr && samples < width) rows[2] = to.direct;  // the rest of a batch is rows
                if (samples < width && samples <= single_samples) {
                    for (int64_t s = sample; s < sample + samples; ++s) {
                        T* values = reinterpret_cast<T*>(y);
                        for (int64_t i = 0; i < n; ++i) values[i] = x[s * n + i] * steepness;
                        forward_single<T>(plan, relaxation, values, [&](int32_t c, int count, const Swap<T>& swap) {
                            const int64_t at = s * to.stride + c;
                            if (rows[0]) store_part(rows[0] + at, count, swap.tail);
                            if (rows[1]) store_part(rows[1] + at, count, swap.density);
                            if (rows[2]) store_part(rows[2] + at, count, swap.slope);
                        });
                        for (int64_t k = 0; to.out && k < plan.outputs; ++k) {
                            to.out[s * plan.outputs + k] = values[plan.output[k]] / steepness;
                        }
                    }
                    continue;
                }
                gather(Block<T>(x + sample * n, n, samples), n, nullptr, y);
                for (int64_t i = 0; i < n; ++i) y[i] *= steepness;
                const auto row = [&](T* array) {
                    return Collector<T>{{array + sample * to.stride, to.stride, samples}, {}};
                };
                if (rows[0] && rows[1]) {
                    Collector<T> tails = row(rows[0]), densities = row(rows[1]), slopes = row(rows[2]);
                    forward_block<T>(plan, relaxation, y, [&](int32_t c, const Swap<T>& swap) {
                        tails.put(c, plan.size, swap.tail);
                        densities.put(c, plan.size, swap.density);
                        slopes.put(c, plan.size, swap.slope);
                    });
                } else if (rows[0]) {
                    Collector<T> tails = row(rows[0]);
                    forward_block<T>(plan, relaxation, y,
                                     [&](int32_t c, const Swap<T>& swap) { tails.put(c, plan.size, swap.tail); });
                } else if (rows[2]) {
                    Collector<T> slopes = row(rows[2]);
                    forward_block<T>(plan, relaxation, y,
                                     [&](int32_t c, const Swap<T>& swap) { slopes.put(c, plan.size, swap.slope); });
                } else if (to.direct) {
                    T* slopes = to.direct + sample * size;
                    forward_block<T>(plan, relaxation, y, [&](int32_t c, const Swap<T>& swap) {
                        Simd<T>::store(slopes + int64_t{c} * width, swap.slope);
                    });
                } else {
                    forward_block<T>(plan, relaxation, y, [](int32_t, const Swap<T>&) {});
                }
                if (to.out) {
                    for (int64_t i = 0; i < n; ++i) y[i] /= steepness;
                    const Block<T> out(to.out + sample * plan.outputs, plan.outputs, samples);
                    scatter(y, plan.outputs, plan.output, out);
                }
            }
        });
    });
    return enough;
}

// The values, backwards ---------------------------------------------------------------------------------------------

// From the gradient of low = y_i + t(d) and high = y_j - t(d) to that of y_i and y_j, with t' = slope and what else
// depends on d adding `extra` to its gradient.
template <typename V, typename... Extra>
inline void pull_back(V& gi, V& gj, V slope, Extra... extra) {
    const V gd = ((slope * (gi - gj)) + ... + extra);
    gi -= gd;
    gj += gd;
}

// The comparators of a run, on a vector of samples per wire and per slope. Within a layer, where the order is free, it
// is forwards, which caches foresee best.
template <typename T>
void backward_run(const SortingPlan& plan, const Run& run, const T* slopes, typename Simd<T>::V* g) {
    using V = typename Simd<T>::V;
    const int32_t* wires = plan.rows + run.rows;
    const auto slope = [&](int64_t comparator) { return Simd<T>::load(slopes + comparator * Simd<T>::width); };
    if (run.kind == Run::quads) {
        for (int32_t q = 0; q < run.count; ++q, wires += 4) {
            V &r0 = g[wires[0]], &r1 = g[wires[1]], &r2 = g[wires[2]], &r3 = g[wires[3]];
            V g0 = r0, g1 = r1, g2 = r2, g3 = r3;
            pull_back(g1, g2, slope(run.second + 2 * q));
            pull_back(g3, g0, slope(run.second + 2 * q + 1));
            pull_back(g0, g1, slope(run.first + 2 * q));
            pull_back(g2, g3, slope(run.first + 2 * q + 1));
            r0 = g0, r1 = g1, r2 = g2, r3 = g3;
        }
        return;
    }
    if (run.kind == Run::chains) {
        const int32_t* links = plan.links + run.links;
        V u = g[wires[0]];
        for (int32_t k = 0; k < run.count; ++k, wires += 2) {
            V v = g[wires[1]], next{};
            if (k + 1 < run.count) next = g[wires[2]];
            if (k + 1 < run.count && links[k + 1] >= 0) pull_back(v, next, slope(links[k + 1]));
            pull_back(u, v, slope(run.first + k));
            g[wires[0]] = u, g[wires[1]] = v;
            u = next;
        }
        return;
    }
    for (int32_t k = 0; k < run.count; ++k, wires += 2) {
        V &u = g[wires[0]], &v = g[wires[1]];
        V gi = u, gj = v;
        pull_back(gi, gj, slope(run.first + k));
        u = gi, v = gj;
    }
}

template <typename T>
bool values_backward(const SortingPlan& plan, const T* slopes, const T* grad, T* grad_x, int64_t batch, int threads) {
    using S = Simd<T>;
    using V = typename S::V;
    constexpr int width = S::width;
    const int64_t n = plan.n, size = plan.size, blocks = (batch + width - 1) / width;
    Enough enough;
    parallel_for(blocks, grain(3 * size), threads, [&](int64_t begin, int64_t end) {
        V* g = static_cast<V*>(scratch(n * sizeof(V)));
        if (g == nullptr) return enough.fail();
        for (int64_t block = begin; block < end; ++block) {
            const int64_t sample = block * width, samples = smaller<int64_t>(width, batch - sample);
            if (samples < width && samples <= single_samples) {
                T* single = reinterpret_cast<T*>(g);
                for (int64_t s = sample; s < sample + samples; ++s) {
                    std::memset(single, 0, n * sizeof(T));
                    for (int64_t k = 0; k < plan.outputs; ++k) single[plan.output[k]] = grad[s * plan.outputs + k];
                    for (int64_t c = size - 1; c >= 0; --c) {
                        pull_back(single[plan.wires[2 * c]], single[plan.wires[2 * c + 1]], slopes[s * size + c]);
                    }
                    std::memcpy(grad_x + s * n, single, n * sizeof(T));
                }
                continue;
            }
            std::memset(g, 0, n * sizeof(V));
            gather(Block<T>(grad + sample * plan.outputs, plan.outputs, samples), plan.outputs, plan.output, g);
            if (samples == width) {
                const T* from = slopes + sample * size;
                for (int32_t r = plan.runs_count - 1; r >= 0; --r) backward_run<T>(plan, plan.runs[r], from, g);
            } else {
                const Block<T> from(slopes + sample * size, size, samples);
                for (int64_t last = size; last > 0;) {
                    const int count = static_cast<int>((last - 1) % width + 1);
                    last -= count;
                    V slope[width];
                    from.load(last, count, slope);
                    for (int k = count - 1; k >= 0; --k) {
                        const int32_t* wires = plan.wires + 2 * (last + k);
                        pull_back(g[wires[0]], g[wires[1]], slope[k]);
                    }
                }
            }
            scatter(g, n, nullptr, Block<T>(grad_x + sample * n, n, samples));
        }
    });
    return enough;
}

// The same for what depends on the swap weights: `sums` has, `parts` times per sample, <G_j - G_i, R_j - R_i> for every
// comparator, whose product with the density is the gradient of d.
template <typename T>
bool weights_backward(const SortingPlan& plan, T steepness, const T* kept, const T* sums, int64_t parts, T* grad_x,
                      int64_t batch, int threads) {
    using V = typename Simd<T>::V;
    constexpr int width = Simd<T>::width;
    const int64_t n = plan.n, size = plan.size, blocks = (batch + width - 1) / width;
    Enough enough;
    parallel_for(blocks, grain(6 * size), threads, [&](int64_t begin, int64_t end) {
        V* g = static_cast<V*>(scratch(n * sizeof(V)));
        if (g == nullptr) return enough.fail();
        for (int64_t block = begin; block < end; ++block) {
            const int64_t sample = block * width, samples = smaller<int64_t>(width, batch - sample);
            if (samples < width && samples <= single_samples) {
                T* single = reinterpret_cast<T*>(g);
                for (int64_t s = sample; s < sample + samples; ++s) {
                    const T *densities = kept + (3 * s + 1) * size, *slopes = densities + size;
                    std::memset(single, 0, n * sizeof(T));
                    for (int64_t c = size - 1; c >= 0; --c) {
                        T sum = 0;
                        for (int64_t p = 0; p < parts; ++p) sum += sums[(s * parts + p) * size + c];
                        T &gi = single[plan.wires[2 * c]], &gj = single[plan.wires[2 * c + 1]];
                        pull_back(gi, gj, slopes[c], densities[c] * sum);
                    }
                    for (int64_t i = 0; i < n; ++i) grad_x[s * n + i] = steepness * single[i];
                }
                continue;
            }
            std::memset(g, 0, n * sizeof(V));
            const Block<T> densities(kept + (3 * sample + 1) * size, 3 * size, samples);
            const Block<T> slopes(kept + (3 * sample + 2) * size, 3 * size, samples);
            for (int64_t last = size; last > 0;) {
                const int count = static_cast<int>((last - 1) % width + 1);
                last -= count;
                V density[width], slope[width], sum[width];
                densities.load(last, count, density);
                slopes.load(last, count, slope);
                for (int k = 0; k < count; ++k) sum[k] = V{};
                for (int64_t p = 0; p < parts; ++p) {
                    V part[width];
                    Block<T>(sums + (sample * parts + p) * size, parts * size, samples).load(last, count, part);
                    for (int k = 0; k < count; ++k) sum[k] += part[k];
                }
                for (int k = count - 1; k >= 0; --k) {
                    const int32_t* wires = plan.wires + 2 * (last + k);
                    pull_back(g[wires[0]], g[wires[1]], slope[k], density[k] * sum[k]);
                }
            }
            for (int64_t i = 0; i < n; ++i) g[i] *= steepness;
            scatter(g, n, nullptr, Block<T>(grad_x + sample * n, n, samples));
        }
    });
    return enough;
}

// Tails, densities and slopes: into `kept`, or the tails alone into memory of our own. Calls f(tails, stride).
template <typename T, typename F>
bool with_tails(const SortingPlan& plan, const Swapping& swapping, const T* x, T* kept, int64_t batch, int threads,
                F&& f) {
    const int64_t size = plan.size;
    if (kept != nullptr) {
        const Outcome<T> to{nullptr, nullptr, kept, kept + size, kept + 2 * size, 3 * size};
        return forward(plan, swapping, x, to, batch, threads) && f(kept, 3 * size);
    }
    const Buffer<T> tails(batch * size);
    const Outcome<T> to{nullptr, nullptr, tails.get(), nullptr, nullptr, size};
    return tails && forward(plan, swapping, x, to, batch, threads) && f(tails.get(), size);
}

// Runs f(sums), which leaves the comparators' sums, and takes them back to x.
template <typename T, typename F>
bool with_sums(const SortingPlan& plan, double steepness, const T* kept, int64_t parts, T* grad_x, int64_t batch,
               int threads, F&& f) {
    const Buffer<T> sums(batch * parts * plan.size);
    return sums && f(sums.get()) &&
           weights_backward(plan, static_cast<T>(steepness), kept, sums.get(), parts, grad_x, batch, threads);
}

}  // namespace
}  // namespace softly::SOFTLY_ISA
