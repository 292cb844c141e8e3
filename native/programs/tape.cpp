// An interpreter that runs a whole program on a block of examples before it takes the next: all values of a block
// stay in the cache, and the cost of decoding an instruction is shared by the block's vectors. The backward pass
// keeps nothing from the forward pass: a block's values are computed again, where its adjoints need them.
#include "programs/tape.h"

#include <cmath>
#include <cstring>

#include "core/parallel.h"
#include "core/scratch.h"
#include "core/simd.h"

namespace softly::SOFTLY_ISA {
namespace {

constexpr int kVectors = 4;

template <typename T>
struct Block {
    using S = Simd<T>;
    using V = typename S::V;
    static constexpr int64_t width = kVectors * S::width;

    V v[kVectors];

    static Block load(const T* from) {
        Block block;
        for (int k = 0; k < kVectors; ++k) block.v[k] = S::load(from + k * S::width);
        return block;
    }
    void store(T* to) const {
        for (int k = 0; k < kVectors; ++k) S::store(to + k * S::width, v[k]);
    }
};

template <typename T>
using V = typename Simd<T>::V;

template <typename T, typename F>
inline void map(T* to, const T* a, F f) {
    const Block<T> x = Block<T>::load(a);
    Block<T> y;
    for (int k = 0; k < kVectors; ++k) y.v[k] = f(x.v[k]);
    y.store(to);
}

template <typename T, typename F>
inline void map(T* to, const T* a, const T* b, F f) {
    const Block<T> x = Block<T>::load(a), y = Block<T>::load(b);
    Block<T> z;
    for (int k = 0; k < kVectors; ++k) z.v[k] = f(x.v[k], y.v[k]);
    z.store(to);
}

template <typename T, typename F>
inline void map(T* to, const T* a, const T* b, const T* c, F f) {
    const Block<T> x = Block<T>::load(a), y = Block<T>::load(b), w = Block<T>::load(c);
    Block<T> z;
    for (int k = 0; k < kVectors; ++k) z.v[k] = f(x.v[k], y.v[k], w.v[k]);
    z.store(to);
}

// Functions of the C library, one lane after the other.
template <typename T, typename F>
inline void each(T* to, const T* a, F f) {
    for (int64_t i = 0; i < Block<T>::width; ++i) to[i] = f(a[i]);
}

template <typename T>
inline V<T> sigmoid(V<T> x) {
    using S = Simd<T>;
    const V<T> e = S::exp(-S::abs(x)), inverse = 1 / (1 + e);
    return x >= 0 ? inverse : (x < 0 ? e * inverse : x);
}

template <typename T>
inline V<T> ndtr(V<T> x, V<T>& density) {
    using S = Simd<T>;
    V<T> gauss;
    const V<T> tail = S::erfc_root_half(S::abs(x), gauss) * T(0.5);
    density = gauss * T(0.39894228040143267794);
    return x >= 0 ? 1 - tail : (x < 0 ? tail : x);
}

template <typename T>
void run(const Instruction* code, int64_t instructions, int64_t first, T* values) {
    using S = Simd<T>;
    using enum Operation;
    constexpr int64_t width = Block<T>::width;
    T* to = values + first * width;
    for (const Instruction* i = code; i < code + instructions; ++i, to += width) {
        const T *a = values + i->a * width, *b = values + i->b * width, *c = values + i->c * width;
        switch (static_cast<Operation>(i->operation)) {
            case add: map(to, a, b, [](V<T> x, V<T> y) { return x + y; }); break;
            case sub: map(to, a, b, [](V<T> x, V<T> y) { return x - y; }); break;
            case mul: map(to, a, b, [](V<T> x, V<T> y) { return x * y; }); break;
            case div: map(to, a, b, [](V<T> x, V<T> y) { return x / y; }); break;
            case neg: map(to, a, [](V<T> x) { return -x; }); break;
            case lerp:
                // From the nearer end, as torch does it: exact at both.
                map(to, a, b, c, [](V<T> x, V<T> y, V<T> w) {
                    const V<T> d = y - x;
                    return w < T(0.5) ? x + w * d : y - d * (1 - w);
                });
                break;
            case sigmoid: map(to, a, [](V<T> x) { return SOFTLY_ISA::sigmoid<T>(x); }); break;
            case exp: map(to, a, [](V<T> x) { return S::exp(x); }); break;
            case log: each(to, a, [](T x) { return std::log(x); }); break;
            case sqrt: map(to, a, [](V<T> x) { return S::sqrt(x); }); break;
            case tanh: each(to, a, [](T x) { return std::tanh(x); }); break;
            case abs: map(to, a, [](V<T> x) { return S::abs(x); }); break;
            // NaN wins, as in torch.
            case minimum: map(to, a, b, [](V<T> x, V<T> y) { return x == x ? (x < y ? x : y) : x; }); break;
            case maximum: map(to, a, b, [](V<T> x, V<T> y) { return x == x ? (x > y ? x : y) : x; }); break;
            case less: map(to, a, b, [](V<T> x, V<T> y) { return x < y ? S::set(1) : S::zero(); }); break;
            case less_equal: map(to, a, b, [](V<T> x, V<T> y) { return x <= y ? S::set(1) : S::zero(); }); break;
            case equal: map(to, a, b, [](V<T> x, V<T> y) { return x == y ? S::set(1) : S::zero(); }); break;
            case select: map(to, a, b, c, [](V<T> x, V<T> y, V<T> w) { return w != 0 ? x : y; }); break;
            case atan2:
                for (int64_t k = 0; k < width; ++k) to[k] = std::atan2(a[k], b[k]);
                break;
            case sin: each(to, a, [](T x) { return std::sin(x); }); break;
            case cos: each(to, a, [](T x) { return std::cos(x); }); break;
            case ndtr:
                map(to, a, [](V<T> x) {
                    V<T> density;
                    return SOFTLY_ISA::ndtr<T>(x, density);
                });
                break;
            case floor: each(to, a, [](T x) { return std::floor(x); }); break;
            case sign: map(to, a, [](V<T> x) { return x > 0 ? S::set(1) : (x < 0 ? S::set(-1) : S::zero()); }); break;
            case constant: map(to, a, [](V<T> x) { return x; }); break;
            case log1p: each(to, a, [](T x) { return std::log1p(x); }); break;
            case expm1: each(to, a, [](T x) { return std::expm1(x); }); break;
            case pow:
                for (int64_t k = 0; k < width; ++k) to[k] = std::pow(a[k], b[k]);
                break;
        }
    }
}

// to += f(g, operands...)
template <typename T, typename F>
inline void grow(T* to, const T* g, F f) {
    for (int k = 0; k < kVectors; ++k) {
        const int64_t at = k * Simd<T>::width;
        Simd<T>::store(to + at, Simd<T>::load(to + at) + f(Simd<T>::load(g + at), at));
    }
}

template <typename T>
void reverse(const Instruction* code, int64_t instructions, int64_t first, const T* values, T* adjoints) {
    using S = Simd<T>;
    using enum Operation;
    constexpr int64_t width = Block<T>::width;
    for (int64_t n = instructions - 1; n >= 0; --n) {
        const Instruction& i = code[n];
        if (i.active == 0) continue;
        const T *y = values + (first + n) * width, *g = adjoints + (first + n) * width;
        const T *a = values + i.a * width, *b = values + i.b * width, *c = values + i.c * width;
        T *da = adjoints + i.a * width, *db = adjoints + i.b * width, *dc = adjoints + i.c * width;
        const bool at_a = i.active & 1, at_b = i.active & 2, at_c = i.active & 4;
        const auto in = [](const T* from, int64_t at) { return S::load(from + at); };
        switch (static_cast<Operation>(i.operation)) {
            case add:
                if (at_a) grow(da, g, [](V<T> h, int64_t) { return h; });
                if (at_b) grow(db, g, [](V<T> h, int64_t) { return h; });
                break;
            case sub:
                if (at_a) grow(da, g, [](V<T> h, int64_t) { return h; });
                if (at_b) grow(db, g, [](V<T> h, int64_t) { return -h; });
                break;
            case mul:
                if (at_a) grow(da, g, [&](V<T> h, int64_t k) { return h * in(b, k); });
                if (at_b) grow(db, g, [&](V<T> h, int64_t k) { return h * in(a, k); });
                break;
            case div:
                if (at_a) grow(da, g, [&](V<T> h, int64_t k) { return h / in(b, k); });
                if (at_b) grow(db, g, [&](V<T> h, int64_t k) { return -h * in(y, k) / in(b, k); });
                break;
            case neg: grow(da, g, [](V<T> h, int64_t) { return -h; }); break;
            case lerp:
                if (at_a) grow(da, g, [&](V<T> h, int64_t k) { return h * (1 - in(c, k)); });
                if (at_b) grow(db, g, [&](V<T> h, int64_t k) { return h * in(c, k); });
                if (at_c) grow(dc, g, [&](V<T> h, int64_t k) { return h * (in(b, k) - in(a, k)); });
                break;
            case sigmoid: grow(da, g, [&](V<T> h, int64_t k) { return h * in(y, k) * (1 - in(y, k)); }); break;
            case exp: grow(da, g, [&](V<T> h, int64_t k) { return h * in(y, k); }); break;
            case log: grow(da, g, [&](V<T> h, int64_t k) { return h / in(a, k); }); break;
            case sqrt: grow(da, g, [&](V<T> h, int64_t k) { return h / (2 * in(y, k)); }); break;
            case tanh: grow(da, g, [&](V<T> h, int64_t k) { return h * (1 - in(y, k) * in(y, k)); }); break;
            case abs:
                grow(da, g, [&](V<T> h, int64_t k) { return in(a, k) > 0 ? h : (in(a, k) < 0 ? -h : S::zero()); });
                break;
            case minimum:
            case maximum: {
                // Ties share, as in torch.
                const bool least = static_cast<Operation>(i.operation) == minimum;
                const auto share = [&](V<T> h, V<T> one, V<T> other) {
                    return one == other ? h * T(0.5) : ((least ? one < other : one > other) ? h : S::zero());
                };
                if (at_a) grow(da, g, [&](V<T> h, int64_t k) { return share(h, in(a, k), in(b, k)); });
                if (at_b) grow(db, g, [&](V<T> h, int64_t k) { return share(h, in(b, k), in(a, k)); });
                break;
            }
            case select:
                if (at_a) grow(da, g, [&](V<T> h, int64_t k) { return in(c, k) != 0 ? h : S::zero(); });
                if (at_b) grow(db, g, [&](V<T> h, int64_t k) { return in(c, k) != 0 ? S::zero() : h; });
                break;
            case atan2: {
                // The origin has no angle, and none of the derivative, as in torch.
                const auto share = [&](V<T> h, int64_t k) {
                    const V<T> norm = in(a, k) * in(a, k) + in(b, k) * in(b, k);
                    return norm == 0 ? S::zero() : h / norm;
                };
                if (at_a) grow(da, g, [&](V<T> h, int64_t k) { return share(h, k) * in(b, k); });
                if (at_b) grow(db, g, [&](V<T> h, int64_t k) { return -share(h, k) * in(a, k); });
                break;
            }
            case sin:
                for (int64_t k = 0; k < width; ++k) da[k] += g[k] * std::cos(a[k]);
                break;
            case cos:
                for (int64_t k = 0; k < width; ++k) da[k] -= g[k] * std::sin(a[k]);
                break;
            case ndtr:
                grow(da, g, [&](V<T> h, int64_t k) {
                    V<T> density;
                    SOFTLY_ISA::ndtr<T>(in(a, k), density);
                    return h * density;
                });
                break;
            case log1p: grow(da, g, [&](V<T> h, int64_t k) { return h / (1 + in(a, k)); }); break;
            case expm1: grow(da, g, [&](V<T> h, int64_t k) { return h * (1 + in(y, k)); }); break;
            case pow:
                for (int64_t k = 0; k < width; ++k) {
                    if (at_a && b[k] != 0) da[k] += g[k] * b[k] * std::pow(a[k], b[k] - 1);
                    if (at_b && (a[k] != 0 || b[k] < 0)) db[k] += g[k] * y[k] * std::log(a[k]);
                }
                break;
            case less:
            case less_equal:
            case equal:
            case floor:
            case sign:
            case constant: break;
        }
    }
}

// Rows of the batch from `begin` on; lanes beyond its end repeat the last example, and are dropped afterwards.
template <typename T>
void gather(const T* x, int64_t rows, int64_t batch, int64_t begin, T* values) {
    constexpr int64_t width = Block<T>::width;
    const int64_t filled = batch - begin < width ? batch - begin : width;
    for (int64_t r = 0; r < rows; ++r) {
        std::memcpy(values + r * width, x + r * batch + begin, sizeof(T) * filled);
        for (int64_t k = filled; k < width; ++k) values[r * width + k] = x[r * batch + batch - 1];
    }
}

template <typename T>
void fill(const double* constants, int64_t count, T* values) {
    constexpr int64_t width = Block<T>::width;
    for (int64_t c = 0; c < count; ++c) {
        for (int64_t k = 0; k < width; ++k) values[c * width + k] = static_cast<T>(constants[c]);
    }
}

}  // namespace

template <typename T>
bool tape(const Instruction* code, int64_t instructions, const double* constants, int64_t num_constants,
          const int32_t* outputs, int64_t num_outputs, const T* x, int64_t inputs, T* out, int64_t batch, int threads) {
    constexpr int64_t width = Block<T>::width;
    SOFTLY_NARROWER_IF(2 * batch <= threads * width, tape, code, instructions, constants, num_constants, outputs,
                       num_outputs, x, inputs, out, batch, threads);
    const int64_t first = inputs + num_constants, slots = first + instructions;
    Enough enough;
    parallel_for((batch + width - 1) / width, 1, threads, [&](int64_t begin, int64_t end) {
        T* values = static_cast<T*>(scratch(sizeof(T) * slots * width));
        if (values == nullptr) {
            return enough.fail();
        }
        fill(constants, num_constants, values + inputs * width);
        for (int64_t block = begin; block < end; ++block) {
            const int64_t from = block * width, filled = batch - from < width ? batch - from : width;
            gather(x, inputs, batch, from, values);
            run(code, instructions, first, values);
            for (int64_t o = 0; o < num_outputs; ++o) {
                std::memcpy(out + o * batch + from, values + outputs[o] * width, sizeof(T) * filled);
            }
        }
    });
    return enough;
}

template <typename T>
bool tape_backward(const Instruction* code, int64_t instructions, const double* constants, int64_t num_constants,
                   const int32_t* outputs, int64_t num_outputs, const T* x, int64_t inputs, const T* grad, T* grad_x,
                   int64_t batch, int threads) {
    constexpr int64_t width = Block<T>::width;
    SOFTLY_NARROWER_IF(2 * batch <= threads * width, tape_backward, code, instructions, constants, num_constants,
                       outputs, num_outputs, x, inputs, grad, grad_x, batch, threads);
    const int64_t first = inputs + num_constants, slots = first + instructions;
    Enough enough;
    parallel_for((batch + width - 1) / width, 1, threads, [&](int64_t begin, int64_t end) {
        T* values = static_cast<T*>(scratch(2 * sizeof(T) * slots * width));
        if (values == nullptr) {
            return enough.fail();
        }
        T* adjoints = values + slots * width;
        fill(constants, num_constants, values + inputs * width);
        for (int64_t block = begin; block < end; ++block) {
            const int64_t from = block * width, filled = batch - from < width ? batch - from : width;
            gather(x, inputs, batch, from, values);
            run(code, instructions, first, values);
            std::memset(adjoints, 0, sizeof(T) * slots * width);
            for (int64_t o = 0; o < num_outputs; ++o) {
                T* to = adjoints + outputs[o] * width;
                for (int64_t k = 0; k < filled; ++k) to[k] += grad[o * batch + from + k];
            }
            reverse(code, instructions, first, values, adjoints);
            for (int64_t r = 0; r < inputs; ++r) {
                std::memcpy(grad_x + r * batch + from, adjoints + r * width, sizeof(T) * filled);
            }
        }
    });
    return enough;
}

#define SOFTLY_INSTANTIATE(T)                                                                                      \
    template bool tape(const Instruction*, int64_t, const double*, int64_t, const int32_t*, int64_t, const T*,     \
                       int64_t, T*, int64_t, int);                                                                 \
    template bool tape_backward(const Instruction*, int64_t, const double*, int64_t, const int32_t*, int64_t,      \
                                const T*, int64_t, const T*, T*, int64_t, int);
SOFTLY_INSTANTIATE(float)
SOFTLY_INSTANTIATE(double)

}  // namespace softly::SOFTLY_ISA
