#include "sorting/network_rows.h"

#include "sorting/passes.h"
#include "sorting/values.h"

namespace softly::SOFTLY_ISA {
namespace {

// rows @ P, from the last layer to the first: a vector per wire holds what up to `width` rows have there.
template <typename T>
struct Product {
    using S = Simd<T>;
    using V = typename S::V;
    static constexpr int width = S::width;

    const SortingPlan& plan;
    const T* rows;
    int64_t k;

    int64_t vectors(int64_t first) const { return smaller<int64_t>(strip_vectors, (k - first + width - 1) / width); }

    void start(int64_t first, T* state) const {
        const int64_t row = vectors(first) * width, count = smaller(k - first, row);
        std::memset(state, 0, plan.n * row * sizeof(T));
        for (int64_t o = 0; o < plan.outputs; ++o) {
            T* to = state + plan.output[o] * row;
            if (rows != nullptr) {
                for (int64_t r = 0; r < count; ++r) to[r] = rows[(first + r) * plan.outputs + o];
            } else if (o >= first && o < first + count) {
                to[o - first] = 1;
            }
        }
    }
    // out: (k, n)
    void write(int64_t first, T* state, T* out) const {
        const int64_t row = vectors(first) * width;
        for (int64_t v = 0; v < vectors(first); ++v) {
            const int64_t top = first + v * width;
            const Block<T> to(out + top * plan.n, plan.n, k - top);
            pieces<width>(plan.n, [&](int64_t begin, int count) {
                V square[width];
                for (int c = 0; c < count; ++c) square[c] = S::load(state + (begin + c) * row + v * width);
                to.store(begin, count, square);
            });
        }
    }
    void read(int64_t first, const T* grad, T* state) const {
        const int64_t row = vectors(first) * width;
        for (int64_t v = 0; v < vectors(first); ++v) {
            const int64_t top = first + v * width;
            const Block<T> from(grad + top * plan.n, plan.n, k - top);
            pieces<width>(plan.n, [&](int64_t begin, int count) {
                V square[width];
                from.load(begin, count, square);
                for (int c = 0; c < count; ++c) {
                    T* to = state + (begin + c) * row + v * width;
                    S::store(to, square[c]);
                    for (int64_t r = k - top; r < width; ++r) to[r] = 0;  // rows that are not there
                }
            });
        }
    }
    // With `backwards`, the gradient's way: from the first layer to the last.
    template <Pass pass, bool backwards>
    void run(int64_t first, const T* tails, T* state, T* slots, T* sums) const {
        const int64_t vectors = this->vectors(first);
        T* next = backwards || pass == Pass::apply ? slots : slots + slots_count() * vectors * width;
        for (int32_t step = 0; step < plan.runs_count; ++step) {
            const Run& run = plan.runs[backwards ? step : plan.runs_count - 1 - step];
            const int64_t own = pass == Pass::apply ? 0 : run.count * softly::slots(run.kind) * vectors * width;
            if (!backwards) next -= own;
            run_part<T, pass, !backwards>({plan, tails, state, vectors * width, next, sums}, run, 0, run.count,
                                          static_cast<int>(vectors));
            if (backwards) next += own;
        }
    }
    int64_t slots_count() const {
        int64_t count = 0;
        for (int32_t r = 0; r < plan.runs_count; ++r) {
            count += int64_t{plan.runs[r].count} * softly::slots(plan.runs[r].kind);
        }
        return count;
    }
};

template <typename T>
bool rows_forward(const SortingPlan& plan, const T* tails, int64_t stride, const T* rows, int64_t k, T* out,
                  int64_t batch, int threads) {
    const Product<T> product{plan, rows, k};
    const int64_t n = plan.n;
    Enough enough;
    parallel_for(batch, grain(2 * plan.size * product.vectors(0)), threads, [&](int64_t begin, int64_t end) {
        T* state = static_cast<T*>(scratch(n * product.vectors(0) * vector_bytes));
        if (state == nullptr) return enough.fail();
        for (int64_t sample = begin; sample < end; ++sample) {
            for (int64_t first = 0; first < k; first += strip_vectors * Simd<T>::width) {
                product.start(first, state);
                product.template run<Pass::apply, false>(first, tails + sample * stride, state, nullptr, nullptr);
                product.write(first, state, out + sample * k * n);
            }
        }
    });
    return enough;
}

template <typename T>
bool rows_backward(const SortingPlan& plan, const T* kept, const T* rows, int64_t k, const T* grad, T* sums,
                   int64_t batch, int threads) {
    const Product<T> product{plan, rows, k};
    const int64_t n = plan.n, size = plan.size, state_size = n * product.vectors(0) * Simd<T>::width;
    const int64_t slots_size = product.slots_count() * product.vectors(0) * Simd<T>::width;
    Enough enough;
    parallel_for(batch, grain(6 * size * product.vectors(0)), threads, [&](int64_t begin, int64_t end) {
        T* state = static_cast<T*>(scratch((state_size + slots_size) * sizeof(T)));
        if (state == nullptr) return enough.fail();
        T* differences = state + state_size;
        for (int64_t sample = begin; sample < end; ++sample) {
            const T* tails = kept + 3 * sample * size;
            std::memset(sums + sample * size, 0, size * sizeof(T));
            for (int64_t first = 0; first < k; first += strip_vectors * Simd<T>::width) {
                product.start(first, state);
                product.template run<Pass::record, false>(first, tails, state, differences, nullptr);
                product.read(first, grad + sample * k * n, state);
                product.template run<Pass::sum, true>(first, tails, state, differences, sums + sample * size);
            }
        }
    });
    return enough;
}

}  // namespace

template <typename T>
bool network_rows(const SortingPlan* plan, int distribution, double art, double steepness, const T* x, const T* rows,
                  int64_t k, T* out, T* kept, int64_t batch, int threads) {
    const Swapping swapping{distribution, art, steepness};
    return with_tails(*plan, swapping, x, kept, batch, threads, [&](const T* tails, int64_t stride) {
        return rows_forward(*plan, tails, stride, rows, k, out, batch, threads);
    });
}

template <typename T>
bool network_rows_backward(const SortingPlan* plan, double steepness, const T* rows, int64_t k, const T* kept,
                           const T* grad, T* grad_x, int64_t batch, int threads) {
    return with_sums(*plan, steepness, kept, 1, grad_x, batch, threads,
                     [&](T* sums) { return rows_backward(*plan, kept, rows, k, grad, sums, batch, threads); });
}

#define SOFTLY_INSTANTIATE(T)                                                                                          \
    template bool network_rows(const SortingPlan*, int, double, double, const T*, const T*, int64_t, T*, T*, int64_t,  \
                               int);                                                                                   \
    template bool network_rows_backward(const SortingPlan*, double, const T*, int64_t, const T*, const T*, T*,         \
                                        int64_t, int);
SOFTLY_INSTANTIATE(float)
SOFTLY_INSTANTIATE(double)
#undef SOFTLY_INSTANTIATE

}  // namespace softly::SOFTLY_ISA
