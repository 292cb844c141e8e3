// Rows of matrices through comparator networks: what both whole matrices and single rows of them are made with.
#pragma once

#include "core/simd.h"
#include "sorting/plan.h"

namespace softly::SOFTLY_ISA {
namespace {

// The layer matrices are symmetric, so that a comparator does the same to the rows of P going forwards, to their
// gradient going backwards, and to columns of the product from the last layer: a and b mix by w. A pass either
// applies that, or records the differences b - a on the way, or is the second one, which sums for every comparator
// the product of its difference with the recorded one.
enum class Pass { apply, record, sum };

// How a comparator mixes: by w = |tail|, or by w = 1 - |tail| where the tail is negative. Small entries of P, which
// logarithms are taken of, are products of small weights; they keep all their digits where these have theirs and
// nothing cancels. So both w and 1 - w are there, or the rows are exchanged and mixed by the smaller one. Which of the
// two is faster is a matter of the width.
template <typename T, Pass pass>
struct Mixer {
    using S = Simd<T>;
    using V = typename S::V;
    static constexpr bool both = vector_bytes > 32;

    V tail, take{}, keep{};

    explicit Mixer(T value) : tail(S::set(value)) {
        if constexpr (both) {
            const V small = S::abs(tail), large = 1 - small;
            take = S::by_sign(tail, large, small);
            keep = S::by_sign(tail, small, large);
        }
    }

    void operator()(V& a, V& b, T* slot, V& sum) const {
        const V difference = b - a;
        if constexpr (pass == Pass::record) S::store(slot, difference);
        if constexpr (pass == Pass::sum) sum += difference * S::load(slot);
        if constexpr (both) {
            const V mixed = keep * a + take * b;
            b = keep * b + take * a;
            a = mixed;
        } else {
            const V near_a = S::by_sign(tail, b, a), near_b = S::by_sign(tail, a, b);
            a = near_a + tail * difference;
            b = near_b - tail * difference;
        }
    }
};

template <typename T>
struct Rows {
    const SortingPlan& plan;
    const T* tails;    // of all comparators
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
    const T *first = rows.tails + run.first, *second = rows.tails + run.second;
    T* slots = rows.slots;
    for (int32_t q = begin; q < end; ++q, slots += 4 * columns * width) {
        const int32_t* wires = rows.plan.rows + run.rows + 4 * q;
        T* r[4];
        for (int k = 0; k < 4; ++k) r[k] = rows.state + wires[k] * rows.row;
        const M mix0(first[2 * q]), mix1(first[2 * q + 1]), mix2(second[2 * q]), mix3(second[2 * q + 1]);
        V s0{}, s1{}, s2{}, s3{};
#pragma GCC unroll 4
        for (int c = 0; c < columns; ++c) {
            const int at = c * width;
            V x0 = S::load(r[0] + at), x1 = S::load(r[1] + at), x2 = S::load(r[2] + at), x3 = S::load(r[3] + at);
            T* slot = slots + 4 * at;
            if constexpr (!backwards) {
                mix0(x0, x1, slot, s0);
                mix1(x2, x3, slot + width, s1);
            }
            mix2(x1, x2, slot + 2 * width, s2);
            mix3(x3, x0, slot + 3 * width, s3);
            if constexpr (backwards) {
                mix0(x0, x1, slot, s0);
                mix1(x2, x3, slot + width, s1);
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
    const T* tails = rows.tails + run.first;
    const auto at = [&](int32_t wire) { return rows.state + wire * rows.row; };
    // One of the rows of a pair waits in registers for the link to the next pair. A link at the border is left out:
    // both its rows are zero there.
    V wait[columns] = {};
    if constexpr (!backwards) {
        for (int32_t k = begin; k < end; ++k) {
            T *u = at(wires[2 * k]), *v = at(wires[2 * k + 1]), *slot = rows.slots + (k - begin) * int64_t{pair_slots};
            const bool linked = k > begin && links[k] >= 0;
            T* before = k > begin ? at(wires[2 * k - 1]) : u;
            const M pair(tails[k]), link(linked ? rows.tails[links[k]] : T(0));
            V sum{}, sum_link{};
#pragma GCC unroll 4
            for (int c = 0; c < columns; ++c) {
                V x = S::load(u + c * width), y = S::load(v + c * width);
                pair(x, y, slot + 2 * c * width, sum);
                if (linked) link(wait[c], x, slot + (2 * c + 1) * width, sum_link);
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
            const M pair(tails[k]), link(linked ? rows.tails[links[k]] : T(0));
            V sum{}, sum_link{};
#pragma GCC unroll 4
            for (int c = 0; c < columns; ++c) {
                V x = S::load(u + c * width), y = wait[c];
                wait[c] = S::load(before + c * width);
                if (linked) link(wait[c], x, slot + (2 * c + 1) * width, sum_link);
                pair(x, y, slot + 2 * c * width, sum);
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
        const Mixer<T, pass> mix(rows.tails[run.first + k]);
        V sum{};
#pragma GCC unroll 4
        for (int c = 0; c < columns; ++c) {
            V x = S::load(u + c * width), y = S::load(v + c * width);
            mix(x, y, slot + c * width, sum);
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

}  // namespace
}  // namespace softly::SOFTLY_ISA
