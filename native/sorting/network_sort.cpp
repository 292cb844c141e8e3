#include "sorting/network_sort.h"

#include "sorting/passes.h"
#include "sorting/values.h"

namespace softly::SOFTLY_ISA {
namespace {

template <typename T>
struct Strips {
    static constexpr int width = Simd<T>::width;
    static constexpr int granule_columns = width > 8 ? width : 8;
    static constexpr int granule = granule_columns / width;  // vectors
    static constexpr int granules = strip_vectors / granule;
    static constexpr int widest = granules * granule_columns;
    static_assert(granules >= 1);

    const SortingPlan& plan;
    const Schedule& calls;

    explicit Strips(const SortingPlan& plan) : plan(plan), calls(schedule(plan, granules, granule_columns)) {}

    int64_t count() const { return calls.strips; }
    int64_t first_column(int64_t strip) const { return strip * widest; }
    int64_t columns(int64_t strip) const { return smaller<int64_t>(widest, plan.n - first_column(strip)); }
    int64_t row(int64_t strip) const {
        return (columns(strip) + granule_columns - 1) / granule_columns * granule_columns;
    }

    template <Pass pass, bool backwards>
    void run(int64_t begin, int64_t end, const T* tails, T* state, int64_t row, T* slots, T* sums) const {
        const auto part = [&](const Call& call) {
            T* own = pass == Pass::apply ? nullptr : slots + (call.slot - calls.calls[begin].slot) * granule_columns;
            const Rows<T> rows{plan, tails, state + call.granule * granule_columns, row, own, sums};
            run_part<T, pass, backwards>(rows, plan.runs[call.run], call.begin, call.end, call.granules * granule);
        };
        if constexpr (backwards) {
            for (int64_t c = end - 1; c >= begin; --c) part(calls.calls[c]);
        } else {
            for (int64_t c = begin; c < end; ++c) part(calls.calls[c]);
        }
    }

    void identity(int64_t strip, T* state) const {
        const int64_t row = this->row(strip), columns = this->columns(strip);
        std::memset(state, 0, plan.n * row * sizeof(T));
        for (int64_t k = 0; k < columns; ++k) state[(first_column(strip) + k) * row + k] = 1;
    }
    void write(int64_t strip, const T* state, T* matrix) const {
        const int64_t row = this->row(strip);
        copy(strip, [&](int64_t r, auto count) {
            std::memcpy(matrix + r * plan.n + first_column(strip), state + plan.output[r] * row, count * sizeof(T));
        });
    }
    void read(int64_t strip, const T* matrix, T* state) const {
        const int64_t row = this->row(strip);
        copy(strip, [&](int64_t r, auto count) {
            T* to = state + plan.output[r] * row;
            std::memcpy(to, matrix + r * plan.n + first_column(strip), count * sizeof(T));
            for (int64_t k = count; k < row; ++k) to[k] = 0;
        });
    }

  private:
    // Calls f(rank, columns) for all rows, with a constant for the width that strips have but for the last one.
    template <typename F>
    void copy(int64_t strip, F&& f) const {
        struct Full {
            constexpr operator int64_t() const { return widest; }
        };
        const int64_t columns = this->columns(strip);
        if (columns == Full()) {
            for (int64_t r = 0; r < plan.n; ++r) f(r, Full());
        } else {
            for (int64_t r = 0; r < plan.n; ++r) f(r, columns);
        }
    }
};

// Splits the strips of a sample among tasks where there are too few samples to keep the threads busy.
int64_t parts_per_sample(int64_t batch, int64_t strips, int threads) {
    if (threads <= 1 || batch >= 4 * threads) return 1;
    return smaller<int64_t>(strips, 2 * threads);
}

template <typename T>
bool matrix_forward(const SortingPlan& plan, const T* tails, int64_t stride, T* out, int64_t batch, int threads) {
    const Strips<T> strips(plan);
    const int64_t n = plan.n, parts = parts_per_sample(batch, strips.count(), threads);
    const int64_t cost = int64_t{plan.size} * (n / Simd<T>::width + 1) / parts;
    Enough enough;
    parallel_for(batch * parts, grain(cost), threads, [&](int64_t begin, int64_t end) {
        T* state = static_cast<T*>(scratch(n * strips.row(0) * sizeof(T)));
        if (state == nullptr) return enough.fail();
        for (int64_t task = begin; task < end; ++task) {
            const int64_t sample = task / parts, part = task % parts;
            for (int64_t s = strips.count() * part / parts; s < strips.count() * (part + 1) / parts; ++s) {
                strips.identity(s, state);
                const int64_t first = strips.calls.begin[s], last = strips.calls.begin[s + 1];
                strips.template run<Pass::apply, false>(first, last, tails + sample * stride, state, strips.row(s),
                                                        nullptr, nullptr);
                strips.write(s, state, out + sample * n * n);
            }
        }
    });
    return enough;
}

// Recorded differences of a strip stay below this, or the states that they can be recomputed from are kept instead,
// at as many places as make both equally large.
constexpr int64_t slots_bytes = 3 << 20;

template <typename T>
struct Checkpoints {
    int64_t count = 0;  // how many states are kept
    int64_t slots;      // the bytes of differences between two of them

    Checkpoints(const Strips<T>& strips, int64_t strip) {
        const int64_t all = strips.calls.slot[strip] * strips.granule_columns * int64_t{sizeof(T)};
        const int64_t state = strips.plan.n * strips.row(strip) * int64_t{sizeof(T)};
        slots = all;
        if (all <= slots_bytes) return;
        while (count * count * state < all) ++count;
        slots = all / count;
    }
};

template <typename T>
bool matrix_backward(const SortingPlan& plan, const T* kept, const T* grad, T* sums, int64_t parts, int64_t batch,
                     int threads) {
    const Strips<T> strips(plan);
    const int64_t n = plan.n, size = plan.size, state_size = n * strips.row(0);
    // A call is never cut: its differences come on top of what a checkpoint allows for.
    int64_t slots_size = 0, states = 0;
    for (int64_t s = 0; s < strips.count(); ++s) {
        const Checkpoints<T> checkpoints(strips, s);
        int64_t largest = 0;
        for (int64_t c = strips.calls.begin[s]; checkpoints.count && c < strips.calls.begin[s + 1]; ++c) {
            const Call& call = strips.calls.calls[c];
            const int64_t own = int64_t{call.end - call.begin} * slots(plan.runs[call.run].kind) * call.granules;
            largest = own > largest ? own : largest;
        }
        const int64_t need = checkpoints.slots / int64_t{sizeof(T)} + largest * strips.granule_columns;
        slots_size = need > slots_size ? need : slots_size;
        states = checkpoints.count > states ? checkpoints.count : states;
    }
    const int64_t cost = 4 * size * (n / Simd<T>::width + 1) / parts;
    Enough enough;
    parallel_for(batch * parts, grain(cost), threads, [&](int64_t begin, int64_t end) {
        T* state = static_cast<T*>(scratch(((2 + states) * state_size + slots_size) * sizeof(T)));
        if (state == nullptr) return enough.fail();
        T *gradient = state + state_size, *saved = gradient + state_size, *differences = saved + states * state_size;
        for (int64_t task = begin; task < end; ++task) {
            const int64_t sample = task / parts, part = task % parts;
            const T* tails = kept + 3 * sample * size;
            T* sum = sums + task * size;
            std::memset(sum, 0, size * sizeof(T));
            for (int64_t s = strips.count() * part / parts; s < strips.count() * (part + 1) / parts; ++s) {
                const int64_t row = strips.row(s), bytes = n * row * int64_t{sizeof(T)};
                const Checkpoints<T> checkpoints(strips, s);
                const Call* calls = strips.calls.calls;
                const int64_t first = strips.calls.begin[s], last = strips.calls.begin[s + 1];
                const auto place = [&](int64_t call) {  // the checkpoint that comes before a call
                    const int64_t at = calls[call].slot * strips.granule_columns * int64_t{sizeof(T)};
                    return checkpoints.count == 0 ? 0 : smaller(at / checkpoints.slots, checkpoints.count - 1);
                };
                strips.identity(s, state);
                int64_t from = first, checkpoint = 0;
                for (int64_t c = first; checkpoints.count && c < last; ++c) {
                    if (c > first && place(c) == place(c - 1)) continue;
                    strips.template run<Pass::apply, false>(from, c, tails, state, row, nullptr, nullptr);
                    std::memcpy(saved + checkpoint++ * state_size, state, bytes);
                    from = c;
                }
                strips.read(s, grad + sample * n * n, gradient);
                for (int64_t stop = last; stop > first; stop = from) {
                    if (stop < last || checkpoints.count == 0) {
                        for (from = stop - 1; from > first && place(from) == place(from - 1);) --from;
                    }
                    if (checkpoints.count) std::memcpy(state, saved + --checkpoint * state_size, bytes);
                    strips.template run<Pass::record, false>(from, stop, tails, state, row, differences, nullptr);
                    strips.template run<Pass::sum, true>(from, stop, tails, gradient, row, differences, sum);
                }
            }
        }
    });
    return enough;
}

}  // namespace

// Which kernels it is decides on the layout of the slopes, and so must not depend on the number of threads.
template <typename T>
bool network_values(const SortingPlan* plan, int distribution, double art, double steepness, const T* x, T* out,
                    T* slopes, int64_t batch, int threads) {
    SOFTLY_NARROWER_IF(2 * batch <= Simd<T>::width, network_values, plan, distribution, art, steepness, x, out, slopes,
                       batch, threads);
    const Outcome<T> to{out, slopes, nullptr, nullptr, nullptr, plan->size};
    return forward(*plan, {distribution, art, steepness}, x, to, batch, threads);
}

template <typename T>
bool network_values_backward(const SortingPlan* plan, const T* slopes, const T* grad, T* grad_x, int64_t batch,
                             int threads) {
    SOFTLY_NARROWER_IF(2 * batch <= Simd<T>::width, network_values_backward, plan, slopes, grad, grad_x, batch,
                       threads);
    return values_backward(*plan, slopes, grad, grad_x, batch, threads);
}

template <typename T>
bool network_matrix(const SortingPlan* plan, int distribution, double art, double steepness, const T* x, T* out,
                    T* kept, int64_t batch, int threads) {
    SOFTLY_NARROWER_IF(plan->n <= Simd<T>::width, network_matrix, plan, distribution, art, steepness, x, out, kept,
                       batch, threads);
    const Swapping swapping{distribution, art, steepness};
    return with_tails(*plan, swapping, x, kept, batch, threads, [&](const T* tails, int64_t stride) {
        return matrix_forward(*plan, tails, stride, out, batch, threads);
    });
}

template <typename T>
bool network_matrix_backward(const SortingPlan* plan, double steepness, const T* kept, const T* grad, T* grad_x,
                             int64_t batch, int threads) {
    SOFTLY_NARROWER_IF(plan->n <= Simd<T>::width, network_matrix_backward, plan, steepness, kept, grad, grad_x, batch,
                       threads);
    const int64_t parts = parts_per_sample(batch, Strips<T>(*plan).count(), threads);
    return with_sums(*plan, steepness, kept, parts, grad_x, batch, threads,
                     [&](T* sums) { return matrix_backward(*plan, kept, grad, sums, parts, batch, threads); });
}

#define SOFTLY_INSTANTIATE(T)                                                                                          \
    template bool network_values(const SortingPlan*, int, double, double, const T*, T*, T*, int64_t, int);             \
    template bool network_values_backward(const SortingPlan*, const T*, const T*, T*, int64_t, int);                   \
    template bool network_matrix(const SortingPlan*, int, double, double, const T*, T*, T*, int64_t, int);             \
    template bool network_matrix_backward(const SortingPlan*, double, const T*, const T*, T*, int64_t, int);
SOFTLY_INSTANTIATE(float)
SOFTLY_INSTANTIATE(double)
#undef SOFTLY_INSTANTIATE

}  // namespace softly::SOFTLY_ISA
