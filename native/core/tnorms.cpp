// T(x) = p Q / (p + (1 - p)(1 - Q)) with Q = prod q(x_i) and q(x) = x / (x + p (1 - x)), all in [0, 1] and
// written so that 0 and 1 are exact.
//
//     dT/dx_i = p / (p + (1 - p)(1 - Q))^2 * prod_{j != i} q(x_j) * p / (x_i + p (1 - x_i))^2
//
// The product over the others is taken from products before and after i, not divided out of Q: so it is right
// where factors are 0, which is the border of a T-norm. A row is seen as `lanes` interleaved columns.
#include "core/tnorms.h"

#include <cstring>

#include "core/parallel.h"

namespace softly::SOFTLY_ISA {
namespace {

// How far an entry may be outside [0, 1].
template <typename T>
constexpr T kRounding = sizeof(T) == 4 ? T(0x1p-19) : T(0x1p-48);

template <typename T>
struct Row {
    typedef T Vector __attribute__((vector_size(32)));
    static constexpr int64_t lanes = 32 / sizeof(T);

    T p;
    bool dual;

    // At most a vector of what is left; a whole one is a single instruction, since its size is known.
    static void copy(void* to, const void* from, int64_t left) {
        if (left >= lanes) {
            std::memcpy(to, from, sizeof(Vector));
        } else {
            std::memcpy(to, from, sizeof(T) * left);
        }
    }

    // Entries begin .. begin + lanes of x; what lies beyond n is neutral.
    Vector load(const T* x, int64_t begin, int64_t n) const {
        Vector v = dual ? Vector{} : Vector{} + T(1);
        copy(&v, x + begin, n - begin);
        return dual ? T(1) - v : v;
    }

    static void store(Vector v, T* out, int64_t begin, int64_t n) { copy(out + begin, &v, n - begin); }

    Vector scale(Vector x) const { return x + p * (T(1) - x); }

    T value(const T* x, int64_t n, bool& inside) const {
        Vector product = Vector{} + T(1);
        auto outside = product < T(0);
        for (int64_t i = 0; i < n; i += lanes) {
            const Vector v = load(x, i, n);
            outside |= (v < -kRounding<T>) | (v > T(1) + kRounding<T>);
            product *= v / scale(v);
        }
        for (int64_t lane = 0; lane < lanes; ++lane) inside = inside && !outside[lane];
        T q = 1;
        for (int64_t lane = 0; lane < lanes; ++lane) q *= product[lane];
        const T result = p * q / (p + (T(1) - p) * (T(1) - q));
        return dual ? T(1) - result : result;
    }

    static T norm(const T* x, int64_t n, bool& inside) {
        Vector sum{};
        auto outside = sum < T(0);
        for (int64_t i = 0; i < n; i += lanes) {
            Vector v{};
            copy(&v, x + i, n - i);
            outside |= (v < -kRounding<T>) | (v > T(1) + kRounding<T>);
            sum += v * v;
        }
        T total = 0;
        for (int64_t lane = 0; lane < lanes; ++lane) {
            inside = inside && !outside[lane];
            total += sum[lane];
        }
        return sizeof(T) == 4 ? T(__builtin_sqrtf(total)) : T(__builtin_sqrt(total));
    }

    void gradient(const T* x, T grad_out, T* grad_x, int64_t n) const {
        Vector product = Vector{} + T(1);
        for (int64_t i = 0; i < n; i += lanes) {
            store(product, grad_x, i, n);
            const Vector v = load(x, i, n);
            product *= v / scale(v);
        }
        Vector others = Vector{} + T(1);
        T before = 1, after = 1;
        for (int64_t lane = 0; lane < lanes; ++lane) {
            others[lane] *= before;
            before *= product[lane];
            others[lanes - 1 - lane] *= after;
            after *= product[lanes - 1 - lane];
        }
        const T denominator = p + (T(1) - p) * (T(1) - before);
        Vector behind = others * (grad_out * p * p / (denominator * denominator));
        for (int64_t i = (n - 1) / lanes * lanes; i >= 0; i -= lanes) {
            const Vector v = load(x, i, n), s = scale(v);
            Vector ahead{};
            copy(&ahead, grad_x + i, n - i);
            store(ahead * behind / (s * s), grad_x, i, n);
            behind *= v / s;
        }
    }
};

// So many entries are worth waking a thread for.
constexpr int64_t kGrain = 16384;

}  // namespace

template <typename T>
bool hamacher(const T* x, T* out, int64_t rows, int64_t n, double p, bool dual, int threads) {
    const Row<T> row{static_cast<T>(p), dual};
    bool all_inside = true;
    parallel_for(rows, 1 + kGrain / n, threads, [&](int64_t begin, int64_t end) {
        bool inside = true;
        for (int64_t r = begin; r < end; ++r) out[r] = row.value(x + r * n, n, inside);
        if (!inside) __atomic_store_n(&all_inside, false, __ATOMIC_RELAXED);
    });
    return all_inside;
}

template <typename T>
void hamacher_backward(const T* x, const T* grad_out, T* grad_x, int64_t rows, int64_t n, double p, bool dual,
                       int threads) {
    const Row<T> row{static_cast<T>(p), dual};
    parallel_for(rows, 1 + kGrain / n, threads, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) row.gradient(x + r * n, grad_out[r], grad_x + r * n, n);
    });
}

template <typename T>
bool euclidean(const T* x, T* out, int64_t rows, int64_t n, int threads) {
    bool all_inside = true;
    parallel_for(rows, 1 + kGrain / n, threads, [&](int64_t begin, int64_t end) {
        bool inside = true;
        for (int64_t r = begin; r < end; ++r) out[r] = Row<T>::norm(x + r * n, n, inside);
        if (!inside) __atomic_store_n(&all_inside, false, __ATOMIC_RELAXED);
    });
    return all_inside;
}

template bool euclidean(const float*, float*, int64_t, int64_t, int);
template bool euclidean(const double*, double*, int64_t, int64_t, int);
template bool hamacher(const float*, float*, int64_t, int64_t, double, bool, int);
template bool hamacher(const double*, double*, int64_t, int64_t, double, bool, int);
template void hamacher_backward(const float*, const float*, float*, int64_t, int64_t, double, bool, int);
template void hamacher_backward(const double*, const double*, double*, int64_t, int64_t, double, bool, int);

}  // namespace softly::SOFTLY_ISA
