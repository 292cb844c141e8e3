// Everything happens in blocks of a few vectors of examples, through all layers: what a block's activations take stays
// in the cache. The backward pass computes the activations of its block again, which costs less than reading them from
// memory, and adds to rows of gradients where the forward pass read rows of activations.
#include "logic/stack.h"

#include <type_traits>

#include "logic/columns.h"
#include "core/parallel.h"
#include "core/scratch.h"

namespace softly::SOFTLY_ISA {
namespace {

// Vectors of examples in a block at most; in one of several layers there are kChunk.
constexpr int64_t kLargest = 16;
// Rows are anywhere in memory: those of the gate that is so many gates ahead are asked for in advance.
constexpr int64_t kAhead = 4;
// Sums longer than this are added up in parts, which keeps single precision.
constexpr int64_t kStretch = 64;

template <typename S>
struct Stack {
    using T = typename Computed<S>::type;
    const S* rows;
    const T* coefficients;
    const int64_t* const* wires;
    const int64_t* sizes;
    const double* factors;
    int64_t depth, inputs, batch, groups, gates, widest;

    Stack(const S* rows, const T* coefficients, const int64_t* const* wires, const int64_t* sizes,
          const double* factors, int64_t depth, int64_t inputs, int64_t batch, int64_t groups)
        : rows(rows),
          coefficients(coefficients),
          wires(wires),
          sizes(sizes),
          factors(factors),
          depth(depth),
          inputs(inputs),
          batch(batch),
          groups(groups),
          gates(0),
          widest(inputs) {
        for (int64_t l = 0; l < depth; ++l) {
            gates += sizes[l];
            widest = sizes[l] > widest ? sizes[l] : widest;
        }
    }

    int64_t last() const { return sizes[depth - 1]; }

    bool connected() const {
        int64_t below = inputs, wrong = 0;
        for (int64_t l = 0; l < depth; below = sizes[l], ++l) {
            for (int64_t j = 0; j < 2 * sizes[l]; ++j) {
                wrong |= static_cast<uint64_t>(wires[l][j]) >= static_cast<uint64_t>(below);
            }
        }
        return wrong == 0;
    }
};

// The gates of a layer between which and the rows below it a pass goes: where they begin, and their wires.
template <typename S>
struct Layer {
    using T = typename Computed<S>::type;
    const int64_t *first, *second;
    const T* c;
    const S* below;
    int64_t stride;

    // Layer number l, before which there are `offset` gates.
    Layer(const Stack<S>& stack, int64_t l, int64_t offset, const S* below, int64_t stride)
        : first(stack.wires[l]),
          second(first + stack.sizes[l]),
          c(stack.coefficients + 4 * offset),
          below(below),
          stride(stride) {}

    const S* a(int64_t gate) const { return below + first[gate] * stride; }
    const S* b(int64_t gate) const { return below + second[gate] * stride; }

    template <int count>
    void values(int64_t gate, int64_t at, typename Memory<S>::V (&out)[count]) const {
        using M = Memory<S>;
        const S *a = this->a(gate) + at, *b = this->b(gate) + at;
        const T c0 = c[4 * gate], c1 = c[4 * gate + 1], c2 = c[4 * gate + 2], c3 = c[4 * gate + 3];
#pragma GCC unroll 4
        for (int v = 0; v < count; ++v) {
            const auto x = M::load(a + v * M::width), y = M::load(b + v * M::width);
            out[v] = (x * c3 + c2) * y + (x * c1 + c0);
        }
    }
};

// All gates of a layer, into rows of `to`.
template <typename S, typename C, typename R>
void evaluate(const Layer<S> layer, int64_t gates, const C columns, R* to, int64_t to_stride) {
    using M = Memory<S>;
    for (int64_t j = 0; j < gates; ++j) {
        columns.in_chunks([&]<int count>(int64_t at, int) {
            typename M::V values[count];
            layer.template values<count>(j, at, values);
#pragma GCC unroll 4
            for (int v = 0; v < count; ++v) Memory<R>::store(to + j * to_stride + at + v * M::width, values[v]);
        });
    }
}

// The sums of groups of gates, into rows of `to`.
template <typename S, typename C>
void evaluate_sums(const Layer<S> layer, int64_t groups, int64_t size, const C columns, typename Computed<S>::type* to,
                   int64_t to_stride) {
    using M = Memory<S>;
    columns.in_chunks([&]<int count>(int64_t at, int) {
        for (int64_t group = 0; group < groups; ++group) {
            typename M::V total[count] = {};
            const int64_t stop = (group + 1) * size;
            for (int64_t begin = group * size; begin < stop; begin += kStretch) {
                const int64_t end = begin + kStretch < stop ? begin + kStretch : stop;
                typename M::V part[count] = {};
                for (int64_t j = begin; j < end; ++j) {
                    typename M::V values[count];
                    layer.template values<count>(j, at, values);
                    for (int v = 0; v < count; ++v) part[v] += values[v];
                }
                for (int v = 0; v < count; ++v) total[v] += part[v];
            }
            for (int v = 0; v < count; ++v) {
                Simd<typename M::T>::store(to + group * to_stride + at + v * M::width, total[v]);
            }
        }
    });
}

// The vector with its first lanes set to 0.
template <typename V>
inline V without(V value, int lanes) {
    for (int lane = 0; lane < lanes; ++lane) value[lane] = 0;
    return value;
}

template <bool written, typename R>
inline void fetch(const R* row, int64_t columns) {
    for (int64_t at = 0; at < columns; at += 64 / sizeof(R)) __builtin_prefetch(row + at, written);
}

// The backward pass of a layer: the gradient of gate j is a row that above(j) gives; where that may be written to it is
// 0 afterwards, ready for another layer. `sums`, (gates, 4), and where `spread` the rows of `grad_below` grow.
//
// With y = c0 + c1 a + c2 b + c3 ab:  dy/dc = (1, a, b, ab),  dy/da = c1 + c3 b,  dy/db = c2 + c3 a.
template <bool spread, typename S, typename C, typename Above>
void differentiate(const Layer<S> layer, int64_t gates, const C columns, typename Computed<S>::type factor,
                   const Above above, typename Computed<S>::type* grad_below, int64_t grad_stride,
                   typename Computed<S>::type* sums) {
    using M = Memory<S>;
    using D = Simd<typename M::T>;
    using V = typename M::V;
    for (int64_t j = 0; j < gates; ++j) {
        if (const int64_t next = j + kAhead; next < gates) {
            fetch<false>(layer.a(next), columns.number);
            fetch<false>(layer.b(next), columns.number);
            if constexpr (spread) {
                fetch<true>(grad_below + layer.first[next] * grad_stride, columns.number);
                fetch<true>(grad_below + layer.second[next] * grad_stride, columns.number);
            }
        }
        const S *a = layer.a(j), *b = layer.b(j);
        auto *ga = grad_below + layer.first[j] * grad_stride, *gb = grad_below + layer.second[j] * grad_stride;
        auto* g = above(j);
        const auto c1 = layer.c[4 * j + 1], c2 = layer.c[4 * j + 2], c3 = layer.c[4 * j + 3];
        V s0 = {}, s1 = {}, s2 = {}, s3 = {};
        columns.in_chunks([&]<int count>(int64_t at, int known) {
            V x[count], y[count], scaled[count];
#pragma GCC unroll 4
            for (int v = 0; v < count; ++v) {
                x[v] = M::load(a + at + v * M::width);
                y[v] = M::load(b + at + v * M::width);
                V grad = D::load(g + at + v * M::width);
                if constexpr (!std::is_const_v<std::remove_pointer_t<decltype(g)>>) {
                    D::store(g + at + v * M::width, D::zero());
                }
                if (count == 1 && known) grad = without(grad, known);
                const V product = grad * x[v];
                s0 += grad;
                s1 += product;
                s2 += grad * y[v];
                s3 += product * y[v];
                scaled[v] = grad * factor;
            }
            if constexpr (spread) {
                // One row after the other: a gate may have the same row twice.
#pragma GCC unroll 4
                for (int v = 0; v < count; ++v) {
                    auto* to = ga + at + v * M::width;
                    D::store(to, D::load(to) + scaled[v] * (y[v] * c3 + c1));
                }
#pragma GCC unroll 4
                for (int v = 0; v < count; ++v) {
                    auto* to = gb + at + v * M::width;
                    D::store(to, D::load(to) + scaled[v] * (x[v] * c3 + c2));
                }
            }
        });
        D::add_sums(s0, s1, s2, s3, sums + 4 * j, sums + 4 * j + 2);
    }
}

// Forward over `columns` examples: `from` and `to` are the stack's rows and its result at the first of them.
template <typename S, typename C>
void forward_block(const Stack<S>& stack, const C& columns, const S* from, int64_t from_stride,
                   typename Computed<S>::type* to, int64_t to_stride, S* work) {
    int64_t offset = 0;
    for (int64_t l = 0; l + 1 < stack.depth; offset += stack.sizes[l], ++l) {
        S* rows = work + (l % 2) * stack.widest * columns.stride();
        evaluate(Layer<S>(stack, l, offset, from, from_stride), stack.sizes[l], columns, rows, columns.stride());
        from = rows;
        from_stride = columns.stride();
    }
    const Layer<S> last(stack, stack.depth - 1, offset, from, from_stride);
    if (stack.groups) {
        evaluate_sums(last, stack.groups, stack.last() / stack.groups, columns, to, to_stride);
    } else {
        evaluate(last, stack.last(), columns, to, to_stride);
    }
}

// Memory of the backward pass of a block, at the most for so many columns: two layers of gradients, which are 0 between
// blocks, and the activations of all layers but the last.
template <typename S>
struct Workspace {
    using T = typename Computed<S>::type;
    T* gradients;
    S* activations;

    static int64_t bytes(const Stack<S>& stack, int64_t columns) {
        const int64_t kept = (stack.gates - stack.last()) * columns * sizeof(S);
        return numbers(stack, columns) * sizeof(T) + (kept + 63) / 64 * 64;
    }
    Workspace(const Stack<S>& stack, int64_t columns, void* memory)
        : gradients(static_cast<T*>(memory)), activations(reinterpret_cast<S*>(gradients + numbers(stack, columns))) {
        __builtin_memset(gradients, 0, numbers(stack, columns) * sizeof(T));
    }

  private:
    static int64_t numbers(const Stack<S>& stack, int64_t columns) {
        return stack.depth > 1 ? 2 * stack.widest * columns : 0;
    }
};

// Backward over `columns` examples. `grad_rows`, of the stack's rows at the first of them, grows; null leaves it.
template <typename S, typename C>
void backward_block(const Stack<S>& stack, const C& columns, const S* from, int64_t from_stride,
                    const typename Computed<S>::type* grad, int64_t grad_stride, typename Computed<S>::type* grad_rows,
                    int64_t grad_rows_stride, typename Computed<S>::type* sums, const Workspace<S>& work) {
    using T = typename Computed<S>::type;
    const int64_t stride = columns.stride();
    const S* below = from;
    int64_t below_stride = from_stride, offset = 0;
    for (int64_t l = 0; l + 1 < stack.depth; offset += stack.sizes[l], ++l) {
        S* rows = work.activations + offset * stride;
        evaluate(Layer<S>(stack, l, offset, below, below_stride), stack.sizes[l], columns, rows, stride);
        below = rows;
        below_stride = stride;
    }
    T* gradient = nullptr;
    for (int64_t l = stack.depth - 1; l >= 0; --l) {
        const int64_t rows_below = l ? stack.sizes[l - 1] : stack.inputs;
        const int64_t offset_below = l ? offset - rows_below : 0;
        const Layer<S> layer(stack, l, offset, l ? work.activations + offset_below * stride : from,
                             l ? stride : from_stride);
        T* to = l ? work.gradients + (l % 2) * stack.widest * stride : grad_rows;
        const int64_t to_stride = l ? stride : grad_rows_stride;
        const auto run = [&](const auto& above) {
            const auto factor = static_cast<T>(stack.factors[l]);
            T* to_sums = sums + 4 * offset;
            if (to != nullptr) {
                differentiate<true>(layer, stack.sizes[l], columns, factor, above, to, to_stride, to_sums);
            } else {
                differentiate<false>(layer, stack.sizes[l], columns, factor, above, to, to_stride, to_sums);
            }
        };
        if (l + 1 < stack.depth) {
            run([=](int64_t j) { return gradient + j * stride; });
        } else if (stack.groups) {
            const auto size = static_cast<uint32_t>(stack.last() / stack.groups);
            run([=](int64_t j) { return grad + static_cast<uint32_t>(j) / size * grad_stride; });
        } else {
            run([=](int64_t j) { return grad + j * grad_stride; });
        }
        gradient = to;
        offset = offset_below;
    }
}

// Examples in blocks of `size` vectors, and less than a vector in the last one. With one layer nothing is gained from
// small blocks, and whole rows are read at once: then the last block has also what would be less than a vector.
struct Blocks {
    int64_t batch, size, vectors, number;
    int width;

    Blocks(int64_t batch, int width, int64_t depth, int threads)
        : batch(batch), size(kChunk), vectors(batch / width), width(width) {
        if (depth > 1 || vectors == 0) {
            number = (vectors + size - 1) / size + (batch % width != 0);
        } else {
            const int64_t share = (vectors + threads - 1) / threads;
            size = share < kLargest ? share : kLargest;
            number = (vectors + size - 1) / size;
            vectors = number * size;
        }
    }
    int64_t first(int64_t block) const {
        const int64_t at = block * size;
        return (at < vectors ? at : vectors) * width;
    }
    int64_t columns(int64_t block) const { return (block + 1 < number ? first(block + 1) : batch) - first(block); }
    int64_t most() const { return (size * width + width + 15) / 16 * 16; }
};

// `columns` of (rows, stride) between memory and a vector a row; what is beyond them is 0.
template <typename A, typename B>
void copy_columns(const A* from, int64_t from_stride, B* to, int64_t to_stride, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < columns; ++i) to[r * to_stride + i] = from[r * from_stride + i];
    }
}

}  // namespace

template <typename S>
int logic_forward(const S* rows, const typename Computed<S>::type* coefficients, const int64_t* const* wires,
                  const int64_t* sizes, int64_t depth, int64_t inputs, int64_t batch, int64_t groups,
                  typename Computed<S>::type* out, int threads) {
    using M = Memory<S>;
    using T = typename M::T;
    const Stack<S> stack(rows, coefficients, wires, sizes, nullptr, depth, inputs, batch, groups);
    if (!stack.connected()) return -1;
    const Blocks blocks(batch, M::width, depth, threads);
    const int64_t results = groups ? groups : stack.last();
    Enough enough;
    parallel_for(blocks.number, 1, threads, [&](int64_t begin, int64_t end) {
        // Two layers, and for less than a vector of examples their rows and results.
        const int64_t layers = depth > 1 ? 2 * stack.widest * blocks.most() : 0;
        void* memory = scratch(layers * sizeof(S) + M::width * (inputs * sizeof(S) + results * sizeof(T)));
        if (memory == nullptr) {
            return enough.fail();
        }
        S* work = static_cast<S*>(memory);
        for (int64_t block = begin; block < end; ++block) {
            const int64_t at = blocks.first(block), columns = blocks.columns(block);
            if (columns >= M::width) {
                with_columns<S>(columns, [&](const auto& width) {
                    forward_block(stack, width, rows + at, batch, out + at, batch, work);
                });
            } else {
                T* to = reinterpret_cast<T*>(work + layers);
                S* from = reinterpret_cast<S*>(to + results * M::width);
                __builtin_memset(from, 0, inputs * M::width * sizeof(S));
                copy_columns(rows + at, batch, from, M::width, inputs, columns);
                forward_block(stack, Columns<1, M::width>(1), from, M::width, to, M::width, work);
                copy_columns(to, M::width, out + at, batch, results, columns);
            }
        }
    });
    return enough ? 1 : 0;
}

template <typename S>
int logic_backward(const S* rows, const typename Computed<S>::type* coefficients, const int64_t* const* wires,
                   const int64_t* sizes, const double* factors, int64_t depth, int64_t inputs, int64_t batch,
                   int64_t groups, const typename Computed<S>::type* grad, S* grad_rows,
                   typename Computed<S>::type* grad_coefficients, int threads) {
    using M = Memory<S>;
    using T = typename M::T;
    const Stack<S> stack(rows, coefficients, wires, sizes, factors, depth, inputs, batch, groups);
    if (!stack.connected()) return -1;
    const Blocks blocks(batch, M::width, depth, threads);
    constexpr bool in_place = sizeof(S) == sizeof(T);
    const int64_t results = groups ? groups : stack.last(), number = blocks.number;
    const int64_t parts = threads < number ? (threads > 1 ? threads : 1) : (number > 1 ? number : 1);
    // Each part of the blocks has sums of its own; they are added in one order, so that a number of threads always
    // gives the same result.
    const Buffer<T> apart_sums((parts - 1) * 4 * stack.gates);
    if (!apart_sums) return 0;
    T* const others = apart_sums.get();
    __builtin_memset(others, 0, (parts - 1) * 4 * stack.gates * sizeof(T));
    __builtin_memset(grad_coefficients, 0, 4 * stack.gates * sizeof(T));
    Enough enough;
    parallel_for(parts, 1, threads, [&](int64_t begin, int64_t end) {
        const int64_t work_bytes = Workspace<S>::bytes(stack, blocks.most());
        // For the rows' gradient where it isn't summed in place, and for less than a vector of examples.
        const int64_t wide = inputs * (in_place ? int64_t{M::width} : blocks.most()) * sizeof(T);
        void* memory = scratch(work_bytes + wide + M::width * (inputs * sizeof(S) + results * sizeof(T)));
        if (memory == nullptr) {
            return enough.fail();
        }
        const Workspace<S> work(stack, blocks.most(), memory);
        T* apart = grad_rows == nullptr ? nullptr : reinterpret_cast<T*>(static_cast<char*>(memory) + work_bytes);
        T* few_grad = reinterpret_cast<T*>(static_cast<char*>(memory) + work_bytes + wide);
        S* few_rows = reinterpret_cast<S*>(few_grad + results * M::width);
        for (int64_t part = begin; part < end; ++part) {
            T* sums = part ? others + (part - 1) * 4 * stack.gates : grad_coefficients;
            for (int64_t block = number * part / parts; block < number * (part + 1) / parts; ++block) {
                const int64_t at = blocks.first(block), columns = blocks.columns(block);
                const bool whole = columns >= M::width;
                const int64_t stride = whole ? (columns + 15) / 16 * 16 : M::width;
                if (whole && in_place && grad_rows != nullptr) {
                    T* to = reinterpret_cast<T*>(grad_rows) + at;
                    for (int64_t r = 0; r < inputs; ++r) __builtin_memset(to + r * batch, 0, columns * sizeof(T));
                    with_columns<S>(columns, [&](const auto& width) {
                        backward_block(stack, width, rows + at, batch, grad + at, batch, to, batch, sums, work);
                    });
                    continue;
                }
                if (apart != nullptr) __builtin_memset(apart, 0, inputs * stride * sizeof(T));
                if (whole) {
                    with_columns<S>(columns, [&](const auto& width) {
                        backward_block(stack, width, rows + at, batch, grad + at, batch, apart, stride, sums, work);
                    });
                } else {
                    __builtin_memset(few_rows, 0, inputs * M::width * sizeof(S));
                    __builtin_memset(few_grad, 0, results * M::width * sizeof(T));
                    copy_columns(rows + at, batch, few_rows, M::width, inputs, columns);
                    copy_columns(grad + at, batch, few_grad, M::width, results, columns);
                    backward_block(stack, Columns<1, M::width>(1), few_rows, M::width, few_grad, M::width, apart,
                                   stride, sums, work);
                }
                for (int64_t r = 0; apart != nullptr && r < inputs; ++r) {
                    for (int64_t v = 0; v < columns; v += M::width) {
                        S piece[M::width];
                        M::store(piece, Simd<T>::load(apart + r * stride + v));
                        const int64_t some = columns - v < M::width ? columns - v : M::width;
                        __builtin_memcpy(grad_rows + r * batch + at + v, piece, some * sizeof(S));
                    }
                }
            }
        }
    });
    for (int64_t part = 1; part < parts; ++part) {
        const T* sums = others + (part - 1) * 4 * stack.gates;
        for (int64_t i = 0; i < 4 * stack.gates; ++i) grad_coefficients[i] += sums[i];
    }
    return enough ? 1 : 0;
}

template int logic_forward(const float*, const float*, const int64_t* const*, const int64_t*, int64_t, int64_t, int64_t,
                           int64_t, float*, int);
template int logic_forward(const double*, const double*, const int64_t* const*, const int64_t*, int64_t, int64_t,
                           int64_t, int64_t, double*, int);
template int logic_forward(const Bfloat16*, const float*, const int64_t* const*, const int64_t*, int64_t, int64_t,
                           int64_t, int64_t, float*, int);
template int logic_backward(const float*, const float*, const int64_t* const*, const int64_t*, const double*, int64_t,
                            int64_t, int64_t, int64_t, const float*, float*, float*, int);
template int logic_backward(const double*, const double*, const int64_t* const*, const int64_t*, const double*, int64_t,
                            int64_t, int64_t, int64_t, const double*, double*, double*, int);
template int logic_backward(const Bfloat16*, const float*, const int64_t* const*, const int64_t*, const double*,
                            int64_t, int64_t, int64_t, int64_t, const float*, Bfloat16*, float*, int);

}  // namespace softly::SOFTLY_ISA
