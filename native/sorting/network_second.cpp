// Forward mode over reverse mode: the values, the matrix and the adjoints of both go through the network with their
// derivatives along u. A vector holds the same entry of several examples.
#include "sorting/network_second.h"

#include "core/distributions.h"
#include "core/parallel.h"
#include "core/scratch.h"
#include "core/simd.h"

namespace softly::SOFTLY_ISA {
namespace {

// A number with its derivative along u.
template <typename T>
struct Dual {
    typename Simd<T>::V value, along;

    Dual operator+(const Dual& o) const { return {value + o.value, along + o.along}; }
    Dual operator-(const Dual& o) const { return {value - o.value, along - o.along}; }
    Dual operator*(const Dual& o) const { return {value * o.value, along * o.value + value * o.along}; }
    Dual& operator+=(const Dual& o) { return *this = *this + o; }
    Dual& operator-=(const Dual& o) { return *this = *this - o; }
};

// What is kept of a comparator on the way to the outputs.
template <typename T>
struct Kept {
    Dual<T> take, keep;  // the probability of swapping, and 1 less that, which both have their digits
    Dual<T> density, difference;  // the negative derivative of the former, and the difference of the values

    // Nothing cancels in small entries, as in the kernels of the matrix.
    void mix(Dual<T>& a, Dual<T>& b) const {
        const Dual<T> mixed = keep * a + take * b;
        b = keep * b + take * a;
        a = mixed;
    }
};

// The derivative of the density at d.
template <Distribution distribution, typename T>
inline typename Simd<T>::V bend(typename Simd<T>::V d, const Swap<T>& swap) {
    using S = Simd<T>;
    using enum Distribution;
    if constexpr (distribution == gaussian) {
        return -d * swap.density;
    } else if constexpr (distribution == logistic) {
        return swap.density * (2 * swap.weight - 1);
    } else if constexpr (distribution == hyperbolic_secant) {
        const auto h = S::exp_minus_half_pi(S::abs(d)), u = h * h;
        const auto size = T(0.5 * pi) * swap.density * (1 - u) / (1 + u);
        return d < 0 ? size : -size;
    } else {
        static_assert(distribution == cauchy);
        return T(-2 * pi) * d * swap.density * swap.density;
    }
}

template <typename T>
struct Block {
    using S = Simd<T>;
    using V = typename S::V;
    static constexpr int width = S::width;

    int64_t begin, filled;

    Block(int64_t block, int64_t batch) : begin(block * width) {
        filled = batch - begin < width ? batch - begin : width;
    }
    // Beyond the end of the batch the last example repeats.
    V load(const T* from, int64_t stride, int64_t at) const {
        V value;
        for (int64_t k = 0; k < width; ++k) value[k] = from[(begin + (k < filled ? k : filled - 1)) * stride + at];
        return value;
    }
    void store(T* to, int64_t stride, int64_t at, V value) const {
        for (int64_t k = 0; k < filled; ++k) to[(begin + k) * stride + at] = value[k];
    }
};

template <Distribution distribution, typename T>
void second(const SortingPlan& plan, T steepness, const T* x, const T* grad, const T* u, T* hessian, T* pushed,
            const Block<T>& block, Dual<T>* memory) {
    using S = Simd<T>;
    const int64_t n = plan.n, size = plan.size;
    Dual<T>*values = memory, *matrix = values + n, *differences = matrix + n * n;
    auto* kept = reinterpret_cast<Kept<T>*>(differences + size * n);
    const Relaxation<distribution, false, T> relaxation(0);
    for (int64_t i = 0; i < n; ++i) {
        values[i] = {block.load(x, n, i), block.load(u, n, i)};
        for (int64_t k = 0; k < n; ++k) matrix[i * n + k] = {S::set(i == k ? T(1) : T(0)), S::zero()};
    }
    for (int64_t c = 0; c < size; ++c) {
        const int64_t i = plan.wires[2 * c], j = plan.wires[2 * c + 1];
        const Dual<T> difference = values[j] - values[i];
        const auto d = difference.value * steepness, along = difference.along * steepness;
        const Swap<T> swap = relaxation(d);
        const auto small = S::abs(swap.tail), large = 1 - small, turn = swap.density * along;
        kept[c] = {{S::by_sign(swap.tail, large, small), -turn},
                   {S::by_sign(swap.tail, small, large), turn},
                   {swap.density, bend<distribution, T>(d, swap) * along},
                   difference};
        kept[c].mix(values[i], values[j]);
        Dual<T>*a = matrix + i * n, *b = matrix + j * n, *slot = differences + c * n;
        for (int64_t k = 0; k < n; ++k) {
            slot[k] = b[k] - a[k];
            kept[c].mix(a[k], b[k]);
        }
    }
    for (int64_t k = 0; k < n * n; ++k) {
        block.store(pushed, n * n, k, matrix[k].along);
        matrix[k] = {block.load(grad, n * n, k), S::zero()};  // from here on the adjoint
    }
    for (int64_t i = 0; i < n; ++i) values[i] = {S::zero(), S::zero()};
    for (int64_t c = size - 1; c >= 0; --c) {
        const int64_t i = plan.wires[2 * c], j = plan.wires[2 * c + 1];
        const Kept<T>& at = kept[c];
        const Dual<T> apart = values[i] - values[j];
        Dual<T> total = apart * at.difference;
        Dual<T>*a = matrix + i * n, *b = matrix + j * n, *slot = differences + c * n;
        for (int64_t k = 0; k < n; ++k) {
            total += (a[k] - b[k]) * slot[k];
            at.mix(a[k], b[k]);
        }
        at.mix(values[i], values[j]);
        Dual<T> slope = at.density * total;
        slope = {slope.value * steepness, slope.along * steepness};
        values[i] += slope;
        values[j] -= slope;
    }
    for (int64_t i = 0; i < n; ++i) block.store(hessian, n, i, values[i].along);
}

}  // namespace

template <typename T>
bool network_second(const SortingPlan* plan, int distribution, double steepness, const T* x, const T* grad, const T* u,
                    T* hessian, T* pushed, int64_t batch, int threads) {
    SOFTLY_NARROWER_IF(2 * batch <= threads * Simd<T>::width, network_second, plan, distribution, steepness, x, grad, u,
                       hessian, pushed, batch, threads);
    using enum Distribution;
    Enough enough;
    const int64_t n = plan->n, size = plan->size, blocks = (batch + Simd<T>::width - 1) / Simd<T>::width;
    const size_t bytes = (n + n * n + size * n) * sizeof(Dual<T>) + size * sizeof(Kept<T>);
    parallel_for(blocks, 1, threads, [&](int64_t begin, int64_t end) {
        auto* memory = static_cast<Dual<T>*>(scratch(bytes));
        if (memory == nullptr) return enough.fail();
        for (int64_t b = begin; b < end; ++b) {
            const Block<T> block(b, batch);
            const T s = T(steepness);
            switch (static_cast<Distribution>(distribution)) {
                case gaussian: second<gaussian>(*plan, s, x, grad, u, hessian, pushed, block, memory); break;
                case logistic: second<logistic>(*plan, s, x, grad, u, hessian, pushed, block, memory); break;
                case cauchy: second<cauchy>(*plan, s, x, grad, u, hessian, pushed, block, memory); break;
                default: second<hyperbolic_secant>(*plan, s, x, grad, u, hessian, pushed, block, memory);
            }
        }
    });
    return enough;
}

#define SOFTLY_INSTANTIATE(T)                                                                                     \
    template bool network_second(const SortingPlan*, int, double, const T*, const T*, const T*, T*, T*, int64_t, int);
SOFTLY_INSTANTIATE(float)
SOFTLY_INSTANTIATE(double)

}  // namespace softly::SOFTLY_ISA
