// From numbers to bits: comparisons of rows as they lie in memory, into the slots that execution.cpp runs gates on.
#pragma once

#include <cstring>

#include "logic/execution.h"

namespace softly::SOFTLY_ISA {
namespace {

#if defined(__AVX2__)
constexpr int word_bytes = 32;
#else
constexpr int word_bytes = 16;
#endif

template <typename V>
V load(const void* from) {
    V value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <typename V>
void store(void* to, V value) {
    std::memcpy(to, &value, sizeof value);
}

// What numbers are compared as: every byte and every threshold of bytes fits into 16 bits, 256 for "never" included.
template <typename T>
struct Compared {
    using type = T;
};
template <>
struct Compared<uint8_t> {
    using type = int16_t;
};

template <int bytes>
struct Unsigned;
template <>
struct Unsigned<2> {
    using type = uint16_t;
};
template <>
struct Unsigned<4> {
    using type = uint32_t;
};
template <>
struct Unsigned<8> {
    using type = uint64_t;
};

// A block of up to 512 rows, a few of its columns at a time. A column lies in memory so that lane w of vector b is row
// (8 * sizeof number) * w + b: a comparison of vector b is then bit b of every lane of the slot, and nothing has to be
// shuffled.
template <typename T>
struct Comparer {
    using C = typename Compared<T>::type;
    using M = typename Unsigned<sizeof(C)>::type;
    static constexpr int64_t bits = 8 * sizeof(C), lanes = slot_examples / bits, width = word_bytes / sizeof(C);
    static constexpr int64_t together =
        sizeof(T) == 8 ? 8 : 16;  // columns at a time: not more than a cache line of them
    static constexpr int64_t stride =
        slot_examples + 32;  // numbers between columns, which would share cache lines' places
    static constexpr int64_t few = 16;                  // rows that are compared one by one
    typedef C V __attribute__((vector_size(word_bytes)));
    typedef M Mask __attribute__((vector_size(word_bytes)));

    static constexpr int64_t bytes = together * stride * sizeof(C);

    const LogicPlan& plan;
    const LogicComparisons& comparisons;
    const C* thresholds;

    template <bool equal>
    static bool holds(C value, C threshold) {
        return equal ? value == threshold : value >= threshold;
    }

    template <bool equal>
    static void compare(const C* column, C threshold, char* slot) {
        for (int64_t w = 0; w < lanes; w += width) {
            Mask collected{};
#pragma GCC unroll 8
            for (int64_t b = bits - 1; b >= 0; --b) {
                const V values = load<V>(column + b * lanes + w);
                const Mask minus_one_where_true = equal ? (Mask)(values == threshold) : (Mask)(values >= threshold);
                collected = collected + collected - minus_one_where_true;
            }
            store(slot + w * sizeof(C), collected);
        }
    }

    void columns(const T* x, int64_t rows, const LogicColumn* column, int64_t count, C* buffer) const {
        const int64_t n = comparisons.num_columns;
        for (int64_t row = 0; row < rows; ++row) {
            const T* from = x + row * n;
            C* to = buffer + row % bits * lanes + row / bits;
            __builtin_prefetch(from + slot_examples * n + column[0].column);  // of the next block
            for (int64_t j = 0; j < count; ++j) to[j * stride] = from[column[j].column];
        }
    }

    void one_by_one(const T* x, int64_t rows, char* slots) const {
        const int64_t n = comparisons.num_columns;
        for (int64_t c = 0; c < comparisons.num_used; ++c) {
            const LogicColumn& used = comparisons.used[c];
            for (int64_t i = used.begin; i < used.end; ++i) {
                uint32_t collected = 0;
                for (int64_t row = 0; row < rows; ++row) {
                    const C value = x[row * n + used.column];
                    const bool bit =
                        i < used.equal ? holds<false>(value, thresholds[i]) : holds<true>(value, thresholds[i]);
                    collected |= static_cast<uint32_t>(bit) << row;
                }
                store(slots + plan.input[i], collected);
            }
        }
    }

    void operator()(const T* x, int64_t rows, void* memory, char* slots) const {
        if (rows <= few) return one_by_one(x, rows, slots);
        C* buffer = static_cast<C*>(memory);
        for (int64_t first = 0; first < comparisons.num_used; first += together) {
            const LogicColumn* used = comparisons.used + first;
            const int64_t left = comparisons.num_used - first, count = left < together ? left : together;
            if (rows < slot_examples) std::memset(memory, 0, bytes);
            columns(x, rows, used, count, buffer);
            for (int64_t j = 0; j < count; ++j) {
                const C* column = buffer + j * stride;
                for (int64_t i = used[j].begin; i < used[j].equal; ++i) {
                    compare<false>(column, thresholds[i], slots + plan.input[i]);
                }
                for (int64_t i = used[j].equal; i < used[j].end; ++i) {
                    compare<true>(column, thresholds[i], slots + plan.input[i]);
                }
            }
        }
    }
};

}  // namespace
}  // namespace softly::SOFTLY_ISA
