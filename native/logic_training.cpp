// Everything happens in blocks of a few vectors of examples, through all layers: what a block's activations take stays
// in the cache. The backward pass computes the activations of its block again, which costs less than reading them from
// memory, and adds to rows of gradients where the forward pass read rows of activations.
#include "logic_training.h"

#include <cstdlib>

#include "parallel.h"
#include "scratch.h"
#include "simd.h"

namespace softly::SOFTLY_ISA {
namespace {

// Vectors of examples in a block.
constexpr int kMost = 4;
// Sums longer than this are added up in parts, which keeps single precision.
constexpr int64_t kStretch = 64;

template <typename S>
struct Memory {
    using T = typename Computed<S>::type;
    using V = typename Simd<T>::V;
    static constexpr int width = Simd<T>::width;

    static V load(const S* from) {
        if constexpr (sizeof(S) == 2) {
            typedef uint16_t Halves __attribute__((vector_size(2 * width)));
            Halves halves;
            __builtin_memcpy(&halves, from, sizeof halves);
            return (V)(__builtin_convertvector(halves, typename Simd<T>::U) << 16);
        } else {
            return Simd<T>::load(from);
        }
    }
    static void store(S* to, V value) {
        if constexpr (sizeof(S) == 2) {
            using U = typename Simd<T>::U;
            typedef uint16_t Halves __attribute__((vector_size(2 * width)));
            const U bits = (U)value, rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
            const U quiet = (bits >> 16) | 0x40;  // rounding would turn some NaN into infinity
            const Halves halves = __builtin_convertvector(value == value ? rounded : quiet, Halves);
            __builtin_memcpy(to, &halves, sizeof halves);
        } else {
            Simd<T>::store(to, value);
        }
    }
};

template <typename S>
struct Stack {
    using T = typename Computed<S>::type;
    const S* rows;
    const T* coefficients;
    const int64_t *wires, *sizes;
    const double* factors;
    int64_t depth, inputs, batch, groups, gates, widest;

    Stack(const S* rows, const T* coefficients, const int64_t* wires, const int64_t* sizes, const double* factors,
          int64_t depth, int64_t inputs, int64_t batch, int64_t groups)
        : rows(rows), coefficients(coefficients), wires(wires), sizes(sizes), factors(factors), depth(depth),
          inputs(inputs), batch(batch), groups(groups), gates(0), widest(inputs) {
        for (int64_t l = 0; l < depth; ++l) {
            gates += sizes[l];
            widest = sizes[l] > widest ? sizes[l] : widest;
        }
    }

    int64_t last() const { return sizes[depth - 1]; }

    bool connected() const {
        int64_t below = inputs, wrong = 0;
        for (int64_t l = 0, offset = 0; l < depth; below = sizes[l], offset += sizes[l], ++l) {
            for (int64_t side = 0; side < 2; ++side) {
                const int64_t* wire = wires + side * gates + offset;
                for (int64_t j = 0; j < sizes[l]; ++j) {
                    wrong |= static_cast<uint64_t>(wire[j]) >= static_cast<uint64_t>(below);
                }
            }
        }
        return wrong == 0;
    }
};

// The gates [begin, end) of a layer; sink(j, values) takes the vectors of gate j.
template <typename S, int count, typename Sink>
inline void evaluate(const Stack<S>& stack, int64_t offset, int64_t begin, int64_t end, const S* below,
                     int64_t stride, const Sink& sink) {
    using M = Memory<S>;
    const int64_t *first = stack.wires + offset, *second = first + stack.gates;
    const auto* c = stack.coefficients + 4 * offset;
    for (int64_t j = begin; j < end; ++j) {
        const S *a = below + first[j] * stride, *b = below + second[j] * stride;
        const auto c0 = c[4 * j], c1 = c[4 * j + 1], c2 = c[4 * j + 2], c3 = c[4 * j + 3];
        typename M::V values[count];
#pragma GCC unroll 4
        for (int v = 0; v < count; ++v) {
            const auto x = M::load(a + v * M::width), y = M::load(b + v * M::width);
            values[v] = (x * c3 + c2) * y + (x * c1 + c0);
        }
        sink(j, values);
    }
}

// All of a layer into rows of `to`.
template <typename S, int count, typename R>
inline void evaluate_rows(const Stack<S>& stack, int64_t layer, int64_t offset, const S* below, int64_t stride, R* to,
                          int64_t to_stride) {
    evaluate<S, count>(stack, offset, 0, stack.sizes[layer], below, stride, [&](int64_t j, const auto& values) {
        for (int v = 0; v < count; ++v) Memory<R>::store(to + j * to_stride + v * Memory<S>::width, values[v]);
    });
}

// Forward over `count` vectors: `from` and `to` are the stack's rows and its result at the first of their examples.
template <typename S, int count>
void forward_block(const Stack<S>& stack, const S* from, int64_t from_stride, typename Computed<S>::type* to,
                   int64_t to_stride, S* work) {
    using M = Memory<S>;
    constexpr int64_t stride = count * M::width;
    const S* below = from;
    int64_t below_stride = from_stride, offset = 0;
    for (int64_t l = 0; l + 1 < stack.depth; offset += stack.sizes[l], ++l) {
        S* rows = work + (l % 2) * stack.widest * stride;
        evaluate_rows<S, count>(stack, l, offset, below, below_stride, rows, stride);
        below = rows;
        below_stride = stride;
    }
    if (stack.groups == 0) {
        evaluate_rows<S, count>(stack, stack.depth - 1, offset, below, below_stride, to, to_stride);
        return;
    }
    const int64_t size = stack.last() / stack.groups;
    for (int64_t group = 0; group < stack.groups; ++group) {
        typename M::V total[count] = {};
        for (int64_t begin = group * size; begin < (group + 1) * size; begin += kStretch) {
            const int64_t end = begin + kStretch < (group + 1) * size ? begin + kStretch : (group + 1) * size;
            typename M::V part[count] = {};
            evaluate<S, count>(stack, offset, begin, end, below, below_stride, [&](int64_t, const auto& values) {
                for (int v = 0; v < count; ++v) part[v] += values[v];
            });
            for (int v = 0; v < count; ++v) total[v] += part[v];
        }
        for (int v = 0; v < count; ++v) Simd<typename M::T>::store(to + group * to_stride + v * M::width, total[v]);
    }
}

// The backward pass of the gates [begin, end) of a layer: source(j, g) gives the gradient of gate j, and `sums` (gates, 4) and, where `spread`,
// the rows of `grad_below` grow.
//
// With y = c0 + c1 a + c2 b + c3 ab:  dy/dc = (1, a, b, ab),  dy/da = c1 + c3 b,  dy/db = c2 + c3 a.
template <typename S, int count, bool spread, typename R, typename Source>
inline void differentiate(const Stack<S>& stack, int64_t layer, int64_t offset, int64_t begin, int64_t end,
                          const S* below, int64_t stride, R* grad_below, int64_t grad_stride,
                          typename Computed<S>::type* sums, const Source& source) {
    using M = Memory<S>;
    using G = Memory<R>;
    using V = typename M::V;
    const int64_t *first = stack.wires + offset, *second = first + stack.gates;
    const auto* c = stack.coefficients + 4 * offset;
    sums += 4 * offset;
    const auto factor = static_cast<typename M::T>(stack.factors[layer]);
    for (int64_t j = begin; j < end; ++j) {
        const S *a = below + first[j] * stride, *b = below + second[j] * stride;
        const auto c1 = c[4 * j + 1], c2 = c[4 * j + 2], c3 = c[4 * j + 3];
        V g[count], x[count], y[count];
        source(j, g);
        V s0 = {}, s1 = {}, s2 = {}, s3 = {};
#pragma GCC unroll 4
        for (int v = 0; v < count; ++v) {
            x[v] = M::load(a + v * M::width);
            y[v] = M::load(b + v * M::width);
            const V gx = g[v] * x[v];
            s0 += g[v];
            s1 += gx;
            s2 += g[v] * y[v];
            s3 += gx * y[v];
        }
        Simd<typename M::T>::add_sums(s0, s1, s2, s3, sums + 4 * j, sums + 4 * j + 2);
        if constexpr (spread) {
            R *ga = grad_below + first[j] * grad_stride, *gb = grad_below + second[j] * grad_stride;
            // One row after the other: a gate may have the same row twice.
#pragma GCC unroll 4
            for (int v = 0; v < count; ++v) {
                g[v] *= factor;
                G::store(ga + v * M::width, G::load(ga + v * M::width) + g[v] * (y[v] * c3 + c1));
            }
#pragma GCC unroll 4
            for (int v = 0; v < count; ++v) {
                G::store(gb + v * M::width, G::load(gb + v * M::width) + g[v] * (x[v] * c3 + c2));
            }
        }
    }
}

template <typename S>
int64_t backward_work(const Stack<S>& stack, int64_t columns) {
    const int64_t kept = (stack.gates - stack.last()) * columns * sizeof(S);
    return (kept + 63) / 64 * 64 + 2 * stack.widest * columns * sizeof(typename Computed<S>::type);
}

// Backward over `count` vectors. `grad_rows`, of the stack's rows at the first of the examples, grows; null leaves it.
template <typename S, int count>
void backward_block(const Stack<S>& stack, const S* from, int64_t from_stride, const typename Computed<S>::type* grad,
                    int64_t grad_stride, typename Computed<S>::type* grad_rows, int64_t grad_rows_stride,
                    typename Computed<S>::type* sums, void* work) {
    using M = Memory<S>;
    using T = typename M::T;
    using V = typename M::V;
    constexpr int64_t stride = count * M::width;
    S* kept = static_cast<S*>(work);
    const int64_t kept_bytes = (stack.gates - stack.last()) * stride * sizeof(S);
    T* buffers = reinterpret_cast<T*>(static_cast<char*>(work) + (kept_bytes + 63) / 64 * 64);

    const S* below = from;
    int64_t below_stride = from_stride, offset = 0;
    for (int64_t l = 0; l + 1 < stack.depth; offset += stack.sizes[l], ++l) {
        evaluate_rows<S, count>(stack, l, offset, below, below_stride, kept + offset * stride, stride);
        below = kept + offset * stride;
        below_stride = stride;
    }
    const T* above = nullptr;
    for (int64_t l = stack.depth - 1; l >= 0; --l) {
        const int64_t rows_below = l ? stack.sizes[l - 1] : stack.inputs;
        const int64_t offset_below = l ? offset - rows_below : 0;
        below = l ? kept + offset_below * stride : from;
        below_stride = l ? stride : from_stride;
        T* to = l ? buffers + (l % 2) * stack.widest * stride : grad_rows;
        const int64_t to_stride = l ? stride : grad_rows_stride;
        if (l) __builtin_memset(to, 0, rows_below * stride * sizeof(T));
        const auto run = [&](int64_t begin, int64_t end, const auto& source) {
            if (to != nullptr) {
                differentiate<S, count, true>(stack, l, offset, begin, end, below, below_stride, to, to_stride, sums,
                                              source);
            } else {
                differentiate<S, count, false>(stack, l, offset, begin, end, below, below_stride, to, to_stride, sums,
                                               source);
            }
        };
        const auto load = [](const T* at, V(&g)[count]) {
            for (int v = 0; v < count; ++v) g[v] = Simd<T>::load(at + v * M::width);
        };
        if (l + 1 == stack.depth && stack.groups) {
            const int64_t size = stack.last() / stack.groups;
            for (int64_t group = 0; group < stack.groups; ++group) {
                run(group * size, (group + 1) * size,
                    [&](int64_t, V(&g)[count]) { load(grad + group * grad_stride, g); });
            }
        } else {
            const T* from_above = l + 1 < stack.depth ? above : grad;
            const int64_t above_stride = l + 1 < stack.depth ? stride : grad_stride;
            run(0, stack.sizes[l], [&](int64_t j, V(&g)[count]) { load(from_above + j * above_stride, g); });
        }
        above = to;
        offset = offset_below;
    }
}

// Examples in blocks of whole vectors, as even as possible, and a last one for what is left.
struct Blocks {
    int64_t batch, vectors, whole;
    int width;

    Blocks(int64_t batch, int width)
        : batch(batch), vectors(batch / width), whole((batch / width + kMost - 1) / kMost), width(width) {}
    int64_t number() const { return whole + (batch % width != 0); }
    int64_t first(int64_t block) const { return block < whole ? vectors * block / whole * width : vectors * width; }
    int64_t columns(int64_t block) const { return (block < whole ? first(block + 1) : batch) - first(block); }
};

template <typename F>
void with_count(int64_t count, const F& body) {
    switch (count) {
        case 1: return body.template operator()<1>();
        case 2: return body.template operator()<2>();
        case 3: return body.template operator()<3>();
        default: return body.template operator()<4>();
    }
}

// `columns` of (rows, stride) between memory and a vector a row; what is beyond them is 0.
template <typename A, typename B>
void copy_columns(const A* from, int64_t from_stride, B* to, int64_t to_stride, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < columns; ++i) to[r * to_stride + i] = from[r * from_stride + i];
    }
}

}  // namespace

template <typename S>
int logic_forward(const S* rows, const typename Computed<S>::type* coefficients, const int64_t* wires,
                  const int64_t* sizes, int64_t depth, int64_t inputs, int64_t batch, int64_t groups,
                  typename Computed<S>::type* out, int threads) {
    using M = Memory<S>;
    using T = typename M::T;
    const Stack<S> stack(rows, coefficients, wires, sizes, nullptr, depth, inputs, batch, groups);
    if (!stack.connected()) return -1;
    const Blocks blocks(batch, M::width);
    const int64_t results = groups ? groups : stack.last();
    int done = 1;
    parallel_for(blocks.number(), 1, threads, [&](int64_t begin, int64_t end) {
        // Two layers, and for the last block its rows and results.
        const int64_t layers = 2 * stack.widest * kMost * M::width;
        void* memory = scratch(layers * sizeof(S) + M::width * (inputs * sizeof(S) + results * sizeof(T)));
        if (memory == nullptr) {
            __atomic_store_n(&done, 0, __ATOMIC_RELAXED);
            return;
        }
        S* work = static_cast<S*>(memory);
        for (int64_t block = begin; block < end; ++block) {
            const int64_t at = blocks.first(block), columns = blocks.columns(block);
            if (columns % M::width == 0) {
                with_count(columns / M::width, [&]<int count>() {
                    forward_block<S, count>(stack, rows + at, batch, out + at, batch, work);
                });
            } else {
                T* to = reinterpret_cast<T*>(work + layers);
                S* from = reinterpret_cast<S*>(to + results * M::width);
                __builtin_memset(from, 0, inputs * M::width * sizeof(S));
                copy_columns(rows + at, batch, from, M::width, inputs, columns);
                forward_block<S, 1>(stack, from, M::width, to, M::width, work);
                copy_columns(to, M::width, out + at, batch, results, columns);
            }
        }
    });
    return done;
}

template <typename S>
int logic_backward(const S* rows, const typename Computed<S>::type* coefficients, const int64_t* wires,
                   const int64_t* sizes, const double* factors, int64_t depth, int64_t inputs, int64_t batch,
                   int64_t groups, const typename Computed<S>::type* grad, S* grad_rows,
                   typename Computed<S>::type* grad_coefficients, int threads) {
    using M = Memory<S>;
    using T = typename M::T;
    const Stack<S> stack(rows, coefficients, wires, sizes, factors, depth, inputs, batch, groups);
    if (!stack.connected()) return -1;
    const Blocks blocks(batch, M::width);
    const int64_t results = groups ? groups : stack.last(), number = blocks.number();
    const int64_t parts = threads < number ? (threads > 1 ? threads : 1) : (number > 1 ? number : 1);
    // Each part of the blocks has sums of its own; they are added in one order, so that a number of threads always
    // gives the same result.
    T* others = parts > 1 ? static_cast<T*>(std::calloc((parts - 1) * 4 * stack.gates, sizeof(T))) : nullptr;
    if (parts > 1 && others == nullptr) return 0;
    __builtin_memset(grad_coefficients, 0, 4 * stack.gates * sizeof(T));
    int done = 1;
    parallel_for(parts, 1, threads, [&](int64_t begin, int64_t end) {
        const int64_t work_bytes = (backward_work(stack, kMost * M::width) + 63) / 64 * 64;
        // For the rows' gradient, which is summed in full precision, and the last block's rows and gradients.
        const int64_t wide = inputs * kMost * M::width * sizeof(T);
        void* work = scratch(work_bytes + wide + M::width * (inputs * sizeof(S) + results * sizeof(T)));
        if (work == nullptr) {
            __atomic_store_n(&done, 0, __ATOMIC_RELAXED);
            return;
        }
        T* summed = grad_rows == nullptr ? nullptr : reinterpret_cast<T*>(static_cast<char*>(work) + work_bytes);
        T* last_grad = reinterpret_cast<T*>(static_cast<char*>(work) + work_bytes + wide);
        S* last_rows = reinterpret_cast<S*>(last_grad + results * M::width);
        for (int64_t part = begin; part < end; ++part) {
            T* sums = part ? others + (part - 1) * 4 * stack.gates : grad_coefficients;
            for (int64_t block = number * part / parts; block < number * (part + 1) / parts; ++block) {
                const int64_t at = blocks.first(block), columns = blocks.columns(block);
                const int64_t count = (columns + M::width - 1) / M::width, stride = count * M::width;
                if (summed != nullptr) __builtin_memset(summed, 0, inputs * stride * sizeof(T));
                if (columns % M::width == 0) {
                    with_count(count, [&]<int count>() {
                        backward_block<S, count>(stack, rows + at, batch, grad + at, batch, summed, stride, sums,
                                                 work);
                    });
                } else {
                    __builtin_memset(last_rows, 0, inputs * M::width * sizeof(S));
                    __builtin_memset(last_grad, 0, results * M::width * sizeof(T));
                    copy_columns(rows + at, batch, last_rows, M::width, inputs, columns);
                    copy_columns(grad + at, batch, last_grad, M::width, results, columns);
                    backward_block<S, 1>(stack, last_rows, M::width, last_grad, M::width, summed, stride, sums, work);
                }
                if (summed == nullptr) continue;
                for (int64_t r = 0; r < inputs; ++r) {
                    S row[kMost * M::width];
                    for (int64_t v = 0; v < stride; v += M::width) {
                        M::store(row + v, Simd<T>::load(summed + r * stride + v));
                    }
                    __builtin_memcpy(grad_rows + r * batch + at, row, columns * sizeof(S));
                }
            }
        }
    });
    for (int64_t part = 1; part < parts; ++part) {
        const T* sums = others + (part - 1) * 4 * stack.gates;
        for (int64_t i = 0; i < 4 * stack.gates; ++i) grad_coefficients[i] += sums[i];
    }
    std::free(others);
    return done;
}

namespace {

// Weights of `width` gates, transposed: vector i holds the weights of gate number i.
template <typename T>
struct Softmax {
    using S = Simd<T>;
    using V = typename S::V;
    static constexpr int width = S::width;
    V p[16];

    Softmax(const T* weights) {
        for (int part = 0; part < 16; part += width) {
            V square[width];
            for (int k = 0; k < width; ++k) square[k] = S::load(weights + 16 * k + part);
            S::transpose(square);
            for (int k = 0; k < width; ++k) p[part + k] = square[k];
        }
        V most = p[0];
        for (int i = 1; i < 16; ++i) most = S::max(p[i], most);
        V total = S::zero();
        for (int i = 0; i < 16; ++i) {
            p[i] = S::exp(p[i] - most);
            total += p[i];
        }
        for (int i = 0; i < 16; ++i) p[i] /= total;
    }

    // The probability that the mixture is true where the bit of the gate's number is set.
    V truth(int bit) const {
        V sum = S::zero();
        for (int i = 0; i < 16; ++i) {
            if (i >> bit & 1) sum += p[i];
        }
        return sum;
    }
};

// Calls body(first gate, how many) for pieces of at most `width`; all but the last are full.
template <typename T, typename F>
void pieces(int64_t n, int threads, const F& body) {
    constexpr int64_t width = Simd<T>::width;
    parallel_for((n + width - 1) / width, 512, threads, [&](int64_t begin, int64_t end) {
        for (int64_t piece = begin; piece < end; ++piece) {
            const int64_t at = piece * width;
            body(at, n - at < width ? n - at : width);
        }
    });
}

}  // namespace

template <typename T>
void gate_coefficients(const T* weights, T* coefficients, int64_t n, int threads) {
    using S = Simd<T>;
    using V = typename S::V;
    pieces<T>(n, threads, [&](int64_t at, int64_t count) {
        T padded[16 * S::width] = {};
        const T* from = weights + 16 * at;
        if (count < S::width) from = static_cast<T*>(__builtin_memcpy(padded, from, 16 * count * sizeof(T)));
        const Softmax<T> softmax(from);
        const V q00 = softmax.truth(3), q01 = softmax.truth(2), q10 = softmax.truth(1), q11 = softmax.truth(0);
        const V c[4] = {q00, q10 - q00, q01 - q00, (q11 - q10) - (q01 - q00)};
        for (int64_t k = 0; k < count; ++k) {
            for (int i = 0; i < 4; ++i) coefficients[4 * (at + k) + i] = c[i][k];
        }
    });
}

// With the gradient h of the truth table's four probabilities, gate i has the gradient sum of h over its bits, and the
// softmax takes off the mean.
template <typename T>
void gate_coefficients_backward(const T* weights, const T* grad, T* grad_weights, int64_t n, int threads) {
    using S = Simd<T>;
    using V = typename S::V;
    pieces<T>(n, threads, [&](int64_t at, int64_t count) {
        T padded[16 * S::width] = {};
        const T* from = weights + 16 * at;
        if (count < S::width) from = static_cast<T*>(__builtin_memcpy(padded, from, 16 * count * sizeof(T)));
        const Softmax<T> softmax(from);
        V g[4] = {};
        for (int64_t k = 0; k < count; ++k) {
            for (int i = 0; i < 4; ++i) g[i][k] = grad[4 * (at + k) + i];
        }
        const V h[4] = {g[3], g[1] - g[3], g[2] - g[3], (g[0] - g[1]) - (g[2] - g[3])};  // by bit: 11, 10, 01, 00
        V gate[16] = {};
        for (int i = 1; i < 16; ++i) {
            const int lowest = __builtin_ctz(i);
            gate[i] = gate[i & (i - 1)] + h[lowest];
        }
        V mean = S::zero();
        for (int i = 0; i < 16; ++i) mean += softmax.p[i] * gate[i];
        for (int part = 0; part < 16; part += S::width) {
            V square[S::width];
            for (int k = 0; k < S::width; ++k) square[k] = softmax.p[part + k] * (gate[part + k] - mean);
            S::transpose(square);
            for (int64_t k = 0; k < count; ++k) S::store(grad_weights + 16 * (at + k) + part, square[k]);
        }
    });
}

template int logic_forward(const float*, const float*, const int64_t*, const int64_t*, int64_t, int64_t, int64_t,
                           int64_t, float*, int);
template int logic_forward(const double*, const double*, const int64_t*, const int64_t*, int64_t, int64_t, int64_t,
                           int64_t, double*, int);
template int logic_forward(const Bfloat16*, const float*, const int64_t*, const int64_t*, int64_t, int64_t, int64_t,
                           int64_t, float*, int);
template int logic_backward(const float*, const float*, const int64_t*, const int64_t*, const double*, int64_t,
                            int64_t, int64_t, int64_t, const float*, float*, float*, int);
template int logic_backward(const double*, const double*, const int64_t*, const int64_t*, const double*, int64_t,
                            int64_t, int64_t, int64_t, const double*, double*, double*, int);
template int logic_backward(const Bfloat16*, const float*, const int64_t*, const int64_t*, const double*, int64_t,
                            int64_t, int64_t, int64_t, const float*, Bfloat16*, float*, int);
template void gate_coefficients(const float*, float*, int64_t, int);
template void gate_coefficients(const double*, double*, int64_t, int);
template void gate_coefficients_backward(const float*, const float*, float*, int64_t, int);
template void gate_coefficients_backward(const double*, const double*, double*, int64_t, int);

}  // namespace softly::SOFTLY_ISA
