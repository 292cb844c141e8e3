#include "sorting_network.h"

#include "sorting_values.h"

namespace softly::SOFTLY_ISA {
namespace {

// Rows through the network ------------------------------------------------------------------------------------------

// The layer matrices are symmetric, so that a comparator does the same to the rows of P going forwards, to their
// gradient going backwards, and to columns of the product from the last layer: a and b mix by w. A pass either
// applies that, or records the differences b - a on the way, or is the second one, which sums for every comparator
// the product of its difference with the recorded one.
enum class Pass { apply, record, sum };

template <typename T, Pass pass>
struct Mixer {
    using S = Simd<T>;
    using V = typename S::V;

    static void mix(V& a, V& b, V w, T* slot, V& sum) {
        const V difference = b - a;
        if constexpr (pass == Pass::record) S::store(slot, difference);
        if constexpr (pass == Pass::sum) sum += difference * S::load(slot);
        a += w * difference;
        b -= w * difference;
    }
};

template <typename T>
struct Rows {
    const SortingPlan& plan;
    const T* weights;  // of all comparators
    T* state;          // a row of `row` elements per wire
    int64_t row;
    T* slots;          // of this call: `columns` vectors per comparator
    T* sums;           // of all comparators
};

// `backwards`: the second layer first.
template <typename T, int columns, Pass pass, bool backwards>
void run_quads(const Rows<T>& rows, const Run& run, int32_t begin, int32_t end) {
    using S = Simd<T>;
    using V = typename S::V;
    using M = Mixer<T, pass>;
    constexpr int width = S::width;
    const T *first = rows.weights + run.first, *second = rows.weights + run.second;
    T* slots = rows.slots;
    for (int32_t q = begin; q < end; ++q, slots += 4 * columns * width) {
        const int32_t* wires = rows.plan.rows + run.rows + 4 * q;
        T* r[4];
        for (int k = 0; k < 4; ++k) r[k] = rows.state + wires[k] * rows.row;
        const V w0 = S::set(first[2 * q]), w1 = S::set(first[2 * q + 1]);
        const V w2 = S::set(second[2 * q]), w3 = S::set(second[2 * q + 1]);
        V s0{}, s1{}, s2{}, s3{};
#pragma GCC unroll 4
        for (int c = 0; c < columns; ++c) {
            const int at = c * width;
            V x0 = S::load(r[0] + at), x1 = S::load(r[1] + at), x2 = S::load(r[2] + at), x3 = S::load(r[3] + at);
            T* slot = slots + 4 * at;
            if constexpr (!backwards) {
                M::mix(x0, x1, w0, slot, s0);
                M::mix(x2, x3, w1, slot + width, s1);
            }
            M::mix(x1, x2, w2, slot + 2 * width, s2);
            M::mix(x3, x0, w3, slot + 3 * width, s3);
            if constexpr (backwards) {
                M::mix(x0, x1, w0, slot, s0);
                M::mix(x2, x3, w1, slot + width, s1);
            }
            S::store(r[0] + at, x0), S::store(r[1] + at, x1), S::store(r[2] + at, x2), S::store(r[3] + at, x3);
        }
        if constexpr (pass == Pass::sum) {
            S::add_sums(s0, s1, s2, s3, rows.sums + run.first + 2 * q, rows.sums + run.second + 2 * q);
        }
    }
}

template <typename T, int columns, Pass pass, bool backwards>
void run_chains(const Rows<T>& rows, const Run& run, int32_t begin, int32_t end) {
    using S = Simd<T>;
    using V = typename S::V;
    using M = Mixer<T, pass>;
    constexpr int width = S::width;
    constexpr int pair_slots = 2 * columns * width;
    const int32_t *wires = rows.plan.rows + run.rows, *links = rows.plan.links + run.links;
    const T* weights = rows.weights + run.first;
    const auto at = [&](int32_t wire) { return rows.state + wire * rows.row; };
    // One of the rows of a pair waits in registers for the link to the next pair. A link at the border is left out:
    // both its rows are zero there.
    V wait[columns] = {};
    if constexpr (!backwards) {
        for (int32_t k = begin; k < end; ++k) {
            T *u = at(wires[2 * k]), *v = at(wires[2 * k + 1]), *slot = rows.slots + (k - begin) * int64_t{pair_slots};
            const bool linked = k > begin && links[k] >= 0;
            T* before = k > begin ? at(wires[2 * k - 1]) : u;
            const V w = S::set(weights[k]), wl = S::set(linked ? rows.weights[links[k]] : T(0));
            V sum{}, sum_link{};
#pragma GCC unroll 4
            for (int c = 0; c < columns; ++c) {
                V x = S::load(u + c * width), y = S::load(v + c * width);
                M::mix(x, y, w, slot + 2 * c * width, sum);
                if (linked) M::mix(wait[c], x, wl, slot + (2 * c + 1) * width, sum_link);
                if (k > begin) S::store(before + c * width, wait[c]);
                S::store(u + c * width, x);
                wait[c] = y;
            }
            if constexpr (pass == Pass::sum) {
                const auto both = S::sums(sum, sum_link);
                rows.sums[run.first + k] += both[0];
                if (linked) rows.sums[links[k]] += both[1];
            }
        }
        for (int c = 0; c < columns; ++c) S::store(at(wires[2 * end - 1]) + c * width, wait[c]);
    } else {
        for (int c = 0; c < columns; ++c) wait[c] = S::load(at(wires[2 * end - 1]) + c * width);
        for (int32_t k = end - 1; k >= begin; --k) {
            T *u = at(wires[2 * k]), *v = at(wires[2 * k + 1]), *slot = rows.slots + (k - begin) * int64_t{pair_slots};
            const bool linked = k > begin && links[k] >= 0;
            const T* before = k > begin ? at(wires[2 * k - 1]) : u;
            const V w = S::set(weights[k]), wl = S::set(linked ? rows.weights[links[k]] : T(0));
            V sum{}, sum_link{};
#pragma GCC unroll 4
            for (int c = 0; c < columns; ++c) {
                V x = S::load(u + c * width), y = wait[c];
                wait[c] = S::load(before + c * width);
                if (linked) M::mix(wait[c], x, wl, slot + (2 * c + 1) * width, sum_link);
                M::mix(x, y, w, slot + 2 * c * width, sum);
                S::store(u + c * width, x), S::store(v + c * width, y);
            }
            if constexpr (pass == Pass::sum) {
                const auto both = S::sums(sum, sum_link);
                rows.sums[run.first + k] += both[0];
                if (linked) rows.sums[links[k]] += both[1];
            }
        }
    }
}

template <typename T, int columns, Pass pass>
void run_singles(const Rows<T>& rows, const Run& run, int32_t begin, int32_t end) {
    using S = Simd<T>;
    using V = typename S::V;
    constexpr int width = S::width;
    T* slot = rows.slots;
    for (int32_t k = begin; k < end; ++k, slot += columns * width) {
        const int32_t* wires = rows.plan.rows + run.rows + 2 * k;
        T *u = rows.state + wires[0] * rows.row, *v = rows.state + wires[1] * rows.row;
        const V w = S::set(rows.weights[run.first + k]);
        V sum{};
#pragma GCC unroll 4
        for (int c = 0; c < columns; ++c) {
            V x = S::load(u + c * width), y = S::load(v + c * width);
            Mixer<T, pass>::mix(x, y, w, slot + c * width, sum);
            S::store(u + c * width, x), S::store(v + c * width, y);
        }
        if constexpr (pass == Pass::sum) rows.sums[run.first + k] += S::sums(sum, sum)[0];
    }
}

template <typename T, int columns, Pass pass, bool backwards>
void run_part(const Rows<T>& rows, const Run& run, int32_t begin, int32_t end) {
    switch (run.kind) {
        case Run::quads: return run_quads<T, columns, pass, backwards>(rows, run, begin, end);
        case Run::chains: return run_chains<T, columns, pass, backwards>(rows, run, begin, end);
        case Run::singles: return run_singles<T, columns, pass>(rows, run, begin, end);
    }
}

// columns: vectors, 1 to 4.
template <typename T, Pass pass, bool backwards>
void run_part(const Rows<T>& rows, const Run& run, int32_t begin, int32_t end, int columns) {
    switch (columns) {
        case 1: return run_part<T, 1, pass, backwards>(rows, run, begin, end);
        case 2: return run_part<T, 2, pass, backwards>(rows, run, begin, end);
        case 3: return run_part<T, 3, pass, backwards>(rows, run, begin, end);
        default: return run_part<T, 4, pass, backwards>(rows, run, begin, end);
    }
}

constexpr int strip_vectors = 4;

// The matrix --------------------------------------------------------------------------------------------------------

template <typename T>
struct Strips {
    static constexpr int width = Simd<T>::width;
    static constexpr int granule = granule_columns / width;  // vectors
    static constexpr int granules = strip_vectors / granule;
    static_assert(granules >= 1);

    const SortingPlan& plan;
    const Schedule& calls;

    explicit Strips(const SortingPlan& plan) : plan(plan), calls(schedule(plan, granules)) {}

    int64_t count() const { return calls.strips; }
    int64_t first_column(int64_t strip) const { return strip * granules * granule_columns; }
    int64_t columns(int64_t strip) const {
        return smaller<int64_t>(granules * granule_columns, plan.n - first_column(strip));
    }
    int64_t row(int64_t strip) const {
        return (columns(strip) + granule_columns - 1) / granule_columns * granule_columns;
    }

    template <Pass pass, bool backwards>
    void run(int64_t begin, int64_t end, const T* weights, T* state, int64_t row, T* slots, T* sums) const {
        const auto part = [&](const Call& call) {
            T* own = pass == Pass::apply ? nullptr : slots + (call.slot - calls.calls[begin].slot) * granule_columns;
            const Rows<T> rows{plan, weights, state + call.granule * granule_columns, row, own, sums};
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
            constexpr operator int64_t() const { return granules * granule_columns; }
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
bool matrix_forward(const SortingPlan& plan, const T* weights, int64_t stride, T* out, int64_t batch, int threads) {
    const Strips<T> strips(plan);
    const int64_t n = plan.n, parts = parts_per_sample(batch, strips.count(), threads);
    const int64_t cost = int64_t{plan.size} * (n / Simd<T>::width + 1) / parts;
    bool enough = true;
    parallel_for(batch * parts, grain(cost), threads, [&](int64_t begin, int64_t end) {
        T* state = static_cast<T*>(scratch(n * strips.row(0) * sizeof(T)));
        if (state == nullptr) return void(__atomic_store_n(&enough, false, __ATOMIC_RELAXED));
        for (int64_t task = begin; task < end; ++task) {
            const int64_t sample = task / parts, part = task % parts;
            for (int64_t s = strips.count() * part / parts; s < strips.count() * (part + 1) / parts; ++s) {
                strips.identity(s, state);
                const int64_t first = strips.calls.begin[s], last = strips.calls.begin[s + 1];
                strips.template run<Pass::apply, false>(first, last, weights + sample * stride, state, strips.row(s),
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
        const int64_t all = strips.calls.slot[strip] * granule_columns * int64_t{sizeof(T)};
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
        const int64_t need = checkpoints.slots / int64_t{sizeof(T)} + largest * granule_columns;
        slots_size = need > slots_size ? need : slots_size;
        states = checkpoints.count > states ? checkpoints.count : states;
    }
    const int64_t cost = 4 * size * (n / Simd<T>::width + 1) / parts;
    bool enough = true;
    parallel_for(batch * parts, grain(cost), threads, [&](int64_t begin, int64_t end) {
        T* state = static_cast<T*>(scratch(((2 + states) * state_size + slots_size) * sizeof(T)));
        if (state == nullptr) return void(__atomic_store_n(&enough, false, __ATOMIC_RELAXED));
        T *gradient = state + state_size, *saved = gradient + state_size, *differences = saved + states * state_size;
        for (int64_t task = begin; task < end; ++task) {
            const int64_t sample = task / parts, part = task % parts;
            const T* weights = kept + 3 * sample * size;
            T* sum = sums + task * size;
            std::memset(sum, 0, size * sizeof(T));
            for (int64_t s = strips.count() * part / parts; s < strips.count() * (part + 1) / parts; ++s) {
                const int64_t row = strips.row(s), bytes = n * row * int64_t{sizeof(T)};
                const Checkpoints<T> checkpoints(strips, s);
                const Call* calls = strips.calls.calls;
                const int64_t first = strips.calls.begin[s], last = strips.calls.begin[s + 1];
                const auto place = [&](int64_t call) {  // the checkpoint that comes before a call
                    const int64_t at = calls[call].slot * granule_columns * int64_t{sizeof(T)};
                    return checkpoints.count == 0 ? 0 : smaller(at / checkpoints.slots, checkpoints.count - 1);
                };
                strips.identity(s, state);
                int64_t from = first, checkpoint = 0;
                for (int64_t c = first; checkpoints.count && c < last; ++c) {
                    if (c > first && place(c) == place(c - 1)) continue;
                    strips.template run<Pass::apply, false>(from, c, weights, state, row, nullptr, nullptr);
                    std::memcpy(saved + checkpoint++ * state_size, state, bytes);
                    from = c;
                }
                strips.read(s, grad + sample * n * n, gradient);
                for (int64_t stop = last; stop > first; stop = from) {
                    if (stop < last || checkpoints.count == 0) {
                        for (from = stop - 1; from > first && place(from) == place(from - 1);) --from;
                    }
                    if (checkpoints.count) std::memcpy(state, saved + --checkpoint * state_size, bytes);
                    strips.template run<Pass::record, false>(from, stop, weights, state, row, differences, nullptr);
                    strips.template run<Pass::sum, true>(from, stop, weights, gradient, row, differences, sum);
                }
            }
        }
    });
    return enough;
}

// Single rows -------------------------------------------------------------------------------------------------------

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
    void run(int64_t first, const T* weights, T* state, T* slots, T* sums) const {
        const int64_t vectors = this->vectors(first);
        T* next = backwards || pass == Pass::apply ? slots : slots + slots_count() * vectors * width;
        for (int32_t step = 0; step < plan.runs_count; ++step) {
            const Run& run = plan.runs[backwards ? step : plan.runs_count - 1 - step];
            const int64_t own = pass == Pass::apply ? 0 : run.count * softly::slots(run.kind) * vectors * width;
            if (!backwards) next -= own;
            run_part<T, pass, !backwards>({plan, weights, state, vectors * width, next, sums}, run, 0, run.count,
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
bool rows_forward(const SortingPlan& plan, const T* weights, int64_t stride, const T* rows, int64_t k, T* out,
                  int64_t batch, int threads) {
    const Product<T> product{plan, rows, k};
    const int64_t n = plan.n;
    bool enough = true;
    parallel_for(batch, grain(2 * plan.size * product.vectors(0)), threads, [&](int64_t begin, int64_t end) {
        T* state = static_cast<T*>(scratch(n * product.vectors(0) * vector_bytes));
        if (state == nullptr) return void(__atomic_store_n(&enough, false, __ATOMIC_RELAXED));
        for (int64_t sample = begin; sample < end; ++sample) {
            for (int64_t first = 0; first < k; first += strip_vectors * Simd<T>::width) {
                product.start(first, state);
                product.template run<Pass::apply, false>(first, weights + sample * stride, state, nullptr, nullptr);
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
    bool enough = true;
    parallel_for(batch, grain(6 * size * product.vectors(0)), threads, [&](int64_t begin, int64_t end) {
        T* state = static_cast<T*>(scratch((state_size + slots_size) * sizeof(T)));
        if (state == nullptr) return void(__atomic_store_n(&enough, false, __ATOMIC_RELAXED));
        T* differences = state + state_size;
        for (int64_t sample = begin; sample < end; ++sample) {
            const T* weights = kept + 3 * sample * size;
            std::memset(sums + sample * size, 0, size * sizeof(T));
            for (int64_t first = 0; first < k; first += strip_vectors * Simd<T>::width) {
                product.start(first, state);
                product.template run<Pass::record, false>(first, weights, state, differences, nullptr);
                product.read(first, grad + sample * k * n, state);
                product.template run<Pass::sum, true>(first, weights, state, differences, sums + sample * size);
            }
        }
    });
    return enough;
}

// Weights, densities and slopes: into `kept`, or the weights alone into memory of our own. Calls f(weights, stride).
template <typename T, typename F>
bool with_weights(const SortingPlan& plan, int distribution, double art, const T* x, T* kept, int64_t batch,
                  int threads, F&& f) {
    const int64_t size = plan.size;
    if (kept != nullptr) {
        const Outcome<T> to{nullptr, nullptr, kept, kept + size, kept + 2 * size, 3 * size};
        return forward(plan, distribution, art, x, to, batch, threads) && f(kept, 3 * size);
    }
    T* weights = static_cast<T*>(std::malloc(batch * size * sizeof(T) + 1));
    if (weights == nullptr) return false;
    const Outcome<T> to{nullptr, nullptr, weights, nullptr, nullptr, size};
    const bool done = forward(plan, distribution, art, x, to, batch, threads) && f(weights, size);
    std::free(weights);
    return done;
}

// Runs f(sums), which leaves the comparators' sums, and takes them back to x.
template <typename T, typename F>
bool with_sums(const SortingPlan& plan, const T* kept, int64_t parts, T* grad_x, int64_t batch, int threads, F&& f) {
    T* sums = static_cast<T*>(std::malloc(batch * parts * plan.size * sizeof(T) + 1));
    if (sums == nullptr) return false;
    const bool done = f(sums) && weights_backward(plan, kept, sums, parts, grad_x, batch, threads);
    std::free(sums);
    return done;
}

}  // namespace

template <typename T>
bool network_values(const SortingPlan* plan, int distribution, double art, const T* x, T* out, T* slopes, int64_t batch,
                    int threads) {
    const Outcome<T> to{out, slopes, nullptr, nullptr, nullptr, plan->size};
    return forward(*plan, distribution, art, x, to, batch, threads);
}

template <typename T>
bool network_values_backward(const SortingPlan* plan, const T* slopes, const T* grad, T* grad_x, int64_t batch,
                             int threads) {
    return values_backward(*plan, slopes, grad, grad_x, batch, threads);
}

template <typename T>
bool network_matrix(const SortingPlan* plan, int distribution, double art, const T* x, T* out, T* kept, int64_t batch,
                    int threads) {
    return with_weights(*plan, distribution, art, x, kept, batch, threads, [&](const T* weights, int64_t stride) {
        return matrix_forward(*plan, weights, stride, out, batch, threads);
    });
}

template <typename T>
bool network_matrix_backward(const SortingPlan* plan, const T* kept, const T* grad, T* grad_x, int64_t batch,
                             int threads) {
    const int64_t parts = parts_per_sample(batch, Strips<T>(*plan).count(), threads);
    return with_sums(*plan, kept, parts, grad_x, batch, threads, [&](T* sums) {
        return matrix_backward(*plan, kept, grad, sums, parts, batch, threads);
    });
}

template <typename T>
bool network_rows(const SortingPlan* plan, int distribution, double art, const T* x, const T* rows, int64_t k, T* out,
                  T* kept, int64_t batch, int threads) {
    return with_weights(*plan, distribution, art, x, kept, batch, threads, [&](const T* weights, int64_t stride) {
        return rows_forward(*plan, weights, stride, rows, k, out, batch, threads);
    });
}

template <typename T>
bool network_rows_backward(const SortingPlan* plan, const T* rows, int64_t k, const T* kept, const T* grad, T* grad_x,
                           int64_t batch, int threads) {
    return with_sums(*plan, kept, 1, grad_x, batch, threads, [&](T* sums) {
        return rows_backward(*plan, kept, rows, k, grad, sums, batch, threads);
    });
}

#define SOFTLY_INSTANTIATE(T)                                                                                          \
    template bool network_values(const SortingPlan*, int, double, const T*, T*, T*, int64_t, int);                     \
    template bool network_values_backward(const SortingPlan*, const T*, const T*, T*, int64_t, int);                   \
    template bool network_matrix(const SortingPlan*, int, double, const T*, T*, T*, int64_t, int);                     \
    template bool network_matrix_backward(const SortingPlan*, const T*, const T*, T*, int64_t, int);                   \
    template bool network_rows(const SortingPlan*, int, double, const T*, const T*, int64_t, T*, T*, int64_t, int);    \
    template bool network_rows_backward(const SortingPlan*, const T*, int64_t, const T*, const T*, T*, int64_t, int);
SOFTLY_INSTANTIATE(float)
SOFTLY_INSTANTIATE(double)
#undef SOFTLY_INSTANTIATE

}  // namespace softly::SOFTLY_ISA
