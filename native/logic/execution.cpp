#include "logic/execution.h"

#include <cstring>

#include "core/parallel.h"
#include "core/scratch.h"
#include "logic/compare.h"

namespace softly::SOFTLY_ISA {
namespace {

typedef uint64_t Word __attribute__((vector_size(word_bytes)));
typedef uint8_t Bytes __attribute__((vector_size(32)));
typedef uint8_t Square __attribute__((vector_size(16)));
constexpr int words = slot_bytes / word_bytes;  // of a slot

// From bytes to bits ------------------------------------------------------------------------------------------------

constexpr int64_t columns = sizeof(Bytes);

// Transposes 16 rows of 16 bytes.
void transpose(Square (&r)[16]) {
    Square t[16];
#pragma GCC unroll 2
    for (int round = 0; round < 2; ++round) {
        // Rows i and i + 8, interleaved, are rows 2i and 2i + 1: four times that is a transposition.
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            t[2 * i] = __builtin_shufflevector(r[i], r[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            t[2 * i + 1] =
                __builtin_shufflevector(r[i], r[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            r[2 * i] = __builtin_shufflevector(t[i], t[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            r[2 * i + 1] =
                __builtin_shufflevector(t[i], t[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
    }
}

// Rows are read a panel of columns at a time, eight rows at once, as they lie in memory.
constexpr int64_t panel = 1024;
constexpr int64_t groups = slot_examples / 8;

// Collects `count` <= 32 columns of up to eight rows, `stride` bytes apart: byte c has the bits of column c.
template <bool whole>
inline Bytes collect(const uint8_t* x, int64_t stride, int64_t rows, Bytes least, int64_t count) {
    Bytes collected{};
    if constexpr (whole) {
#pragma GCC unroll 8
        for (int row = 0; row < 8; ++row) {
            const uint8_t bit = static_cast<uint8_t>(1 << row);
            collected |= (Bytes)(load<Bytes>(x + row * stride) >= least) & bit;
        }
    } else {
        for (int64_t row = 0; row < rows; ++row) {
            Bytes values{};
            std::memcpy(&values, x + row * stride, count);
            const uint8_t bit = static_cast<uint8_t>(1 << row);
            collected |= (Bytes)(values >= least) & bit;
        }
    }
    return collected;
}

// Packs up to 512 rows into the slots of their inputs; `bits` has room for a panel. Of x there are `available` bytes, and
// as long as these last, a row's last columns are read as if there were 32 of them.
void pack(const LogicPlan& plan, const uint8_t* x, int64_t available, const uint8_t* thresholds, int64_t rows,
          Bytes* bits, char* slots) {
    const int64_t n = plan.num_inputs;
    for (int64_t begin = 0; begin < n; begin += panel) {
        const int64_t end = begin + panel < n ? begin + panel : n;
        for (int64_t group = 0; group < groups; ++group) {
            const int64_t present = rows - 8 * group;
            const uint8_t* from = x + 8 * group * n;
            for (int64_t c = begin; c < end; c += columns) {
                const int64_t count = end - c < columns ? end - c : columns;
                Bytes least{};
                if (count == columns) {
                    least = load<Bytes>(thresholds + c);
                } else {
                    std::memcpy(&least, thresholds + c, count);
                }
                // The next eight rows, which follow these, are on their way meanwhile.
                for (int line = 0; line < 256; line += 64) __builtin_prefetch(from + 8 * n + 8 * (c - begin) + line);
                const bool whole = present >= 8 && (8 * group + 7) * n + c + columns <= available;
                bits[(c - begin) / columns * groups + group] =
                    whole         ? collect<true>(from + c, n, 8, least, count)
                    : present > 0 ? collect<false>(from + c, n, present < 8 ? present : 8, least, count)
                                  : Bytes{};
            }
        }
        for (int64_t c = begin; c < end; c += 16) {
            const char* from =
                reinterpret_cast<const char*>(bits + (c - begin) / columns * groups) + (c - begin) % columns;
            for (int64_t part = 0; part < groups; part += 16) {
                Square square[16];
                for (int i = 0; i < 16; ++i) square[i] = load<Square>(from + (part + i) * columns);
                transpose(square);
                for (int64_t i = 0; i < 16 && c + i < end; ++i) store(slots + plan.input[c + i] + part, square[i]);
            }
        }
    }
}

// The gates ---------------------------------------------------------------------------------------------------------

template <typename Operation>
void run(const LogicGate* gate, const LogicGate* end, char* slots, Operation operation) {
    for (; gate != end; ++gate) {
        const char *a = slots + gate->a, *b = slots + gate->b;
        char* out = slots + gate->out;
        Word result[words];
#pragma GCC unroll 4
        for (int w = 0; w < words; ++w)
            result[w] = operation(load<Word>(a + w * word_bytes), load<Word>(b + w * word_bytes));
#pragma GCC unroll 4
        for (int w = 0; w < words; ++w) store(out + w * word_bytes, result[w]);
    }
}

void run_all(const LogicPlan& plan, char* slots) {
    for (int64_t r = 0; r < plan.num_runs; ++r) {
        const LogicRun& part = plan.runs[r];
        const LogicGate *begin = plan.gates + part.begin, *end = plan.gates + part.end;
        switch (part.operation) {
            case LogicRun::both: run(begin, end, slots, [](Word a, Word b) { return a & b; }); break;
            case LogicRun::second_only: run(begin, end, slots, [](Word a, Word b) { return ~a & b; }); break;
            case LogicRun::either: run(begin, end, slots, [](Word a, Word b) { return a | b; }); break;
            case LogicRun::different: run(begin, end, slots, [](Word a, Word b) { return a ^ b; }); break;
        }
    }
}

// The counts, as bits of numbers ----------------------------------------------------------------------------------

// A slot in registers.
struct Line {
    Word w[words];
};

template <typename F>
inline Line each(F&& f) {
    Line result;
#pragma GCC unroll 4
    for (int i = 0; i < words; ++i) result.w[i] = f(i);
    return result;
}
inline Line operator&(Line a, Line b) {
    return each([&](int i) { return a.w[i] & b.w[i]; });
}
inline Line operator|(Line a, Line b) {
    return each([&](int i) { return a.w[i] | b.w[i]; });
}
inline Line operator^(Line a, Line b) {
    return each([&](int i) { return a.w[i] ^ b.w[i]; });
}
inline Line operator~(Line a) {
    return each([&](int i) { return ~a.w[i]; });
}

// The sum of three bits has the bits `sum` and `carry`.
inline void add(Line a, Line b, Line c, Line& sum, Line& carry) {
    const Line half = a ^ b;
    carry = (a & b) | (half & c);
    sum = half ^ c;
}

// How many bits the number `most` has.
int bits_of(int64_t most) { return 64 - __builtin_clzll(static_cast<uint64_t>(most) | 1); }

constexpr int most_planes = 64;

// Counts the outputs from `output` to `end`: planes[b] is bit b of the count.
void count(const LogicOutput* output, const LogicOutput* end, const char* slots, Line* planes, int num_planes) {
    const auto bit = [&](int number) {
        const char* from = slots + output[number].slot;
        const uint64_t flip = uint64_t{0} - output[number].negated;
        return each([&](int i) { return load<Word>(from + i * word_bytes) ^ flip; });
    };
    // The last three bits in registers; the carry of eight goes to the others in memory.
    Line ones{}, twos{}, fours{};
    for (int b = 0; b < num_planes; ++b) planes[b] = Line{};
    const auto carry_on = [&](Line carry) {
        for (int b = 3; b < num_planes; ++b) {
            const Line before = planes[b];
            planes[b] = before ^ carry;
            carry = before & carry;
        }
    };
    Line eights{};
    bool odd = false;
    for (; output + 8 <= end; output += 8) {
        Line two_a, two_b, four_a, four_b, eight;
        add(ones, bit(0), bit(1), ones, two_a);
        add(ones, bit(2), bit(3), ones, two_b);
        add(twos, two_a, two_b, twos, four_a);
        add(ones, bit(4), bit(5), ones, two_a);
        add(ones, bit(6), bit(7), ones, two_b);
        add(twos, two_a, two_b, twos, four_b);
        add(fours, four_a, four_b, fours, eight);
        if ((odd = !odd)) {
            eights = eight;
        } else {  // two at once: their sum has no bit of its own beyond the next
            Line sixteen;
            add(planes[3], eights, eight, planes[3], sixteen);
            for (int b = 4; b < num_planes; ++b) {
                const Line before = planes[b];
                planes[b] = before ^ sixteen;
                sixteen = before & sixteen;
            }
        }
    }
    if (odd) carry_on(eights);
    for (; output != end; ++output) {
        Line carry = bit(0), before = ones;
        ones = before ^ carry, carry = carry & before, before = twos;
        twos = before ^ carry, carry = carry & before, before = fours;
        fours = before ^ carry, carry = carry & before;
        carry_on(carry);
    }
    const Line low[3] = {ones, twos, fours};
    for (int b = 0; b < 3 && b < num_planes; ++b) planes[b] = low[b];
}

// Byte i is bit i of the argument.
inline uint64_t spread(uint8_t bits) {
    // Eight copies; in copy i only bit i is kept, and moved to the lowest place by way of the highest.
    const uint64_t kept = bits * uint64_t{0x0101010101010101} & uint64_t{0x8040201008040201};
    return ((kept + uint64_t{0x7f7f7f7f7f7f7f7f}) >> 7) & uint64_t{0x0101010101010101};
}

// Numbers from their bits, for the examples that there are: to[example * stride].
template <typename T>
void numbers(const Line* planes, int num_planes, int64_t examples, T* to, int64_t stride) {
    for (int64_t group = 0; 8 * group < examples; ++group) {
        T value[8]{};
        for (int first = 0; first < num_planes; first += 8) {
            uint64_t sum = 0;
            for (int b = first; b < num_planes && b < first + 8; ++b) {
                sum |= spread(reinterpret_cast<const uint8_t*>(planes + b)[group]) << (b - first);
            }
            for (int i = 0; i < 8; ++i) value[i] |= static_cast<T>(sum >> 8 * i & 255) << first;
        }
        const int64_t left = examples - 8 * group;
        for (int64_t i = 0; i < 8 && i < left; ++i) to[(8 * group + i) * stride] = value[i];
    }
}

// The counts of the groups of outputs.
struct Counter {
    const LogicPlan& plan;
    int64_t group;   // outputs of one
    int num_planes;  // bits of a count

    explicit Counter(const LogicPlan& p) : plan(p), group(p.num_outputs / p.k), num_planes(bits_of(group)) {}

    void operator()(int64_t number, const char* slots, Line* planes) const {
        const LogicOutput* first = plan.output + number * group;
        count(first, first + group, slots, planes, num_planes);
    }
};

void counts_of(const Counter& counter, const char* slots, int64_t examples, int32_t* counts) {
    const int64_t k = counter.plan.k;
    for (int64_t c = 0; c < k; ++c) {
        Line planes[most_planes];
        counter(c, slots, planes);
        numbers(planes, counter.num_planes, examples, counts + c, k);
    }
}

void best_of(const Counter& counter, const char* slots, int64_t examples, int64_t* best) {
    const int index_planes = bits_of(counter.plan.k - 1);
    Line most[most_planes], planes[most_planes], index[most_planes]{};
    counter(0, slots, most);
    for (int64_t c = 1; c < counter.plan.k; ++c) {
        counter(c, slots, planes);
        Line more{};
        for (int b = 0; b < counter.num_planes; ++b) {
            more = (planes[b] & ~most[b]) | (more & ~(planes[b] ^ most[b]));
        }
        for (int b = 0; b < counter.num_planes; ++b) most[b] = most[b] ^ ((most[b] ^ planes[b]) & more);
        for (int b = 0; b < index_planes; ++b) index[b] = c >> b & 1 ? index[b] | more : index[b] & ~more;
    }
    numbers(index, index_planes, examples, best, 1);
}

// Inputs of a block of rows: `bytes` of memory besides the slots, and what fills the slots from rows `first` to
// `first + examples` with their help.
struct BitInputs {
    const LogicPlan& plan;
    const uint8_t *x, *thresholds;
    int64_t rows;
    static constexpr int64_t bytes = panel * groups;

    void operator()(int64_t first, int64_t examples, void* memory, char* slots) const {
        const int64_t n = plan.num_inputs;
        pack(plan, x + first * n, (rows - first) * n, thresholds, examples, static_cast<Bytes*>(memory), slots);
    }
};

template <typename T>
struct NumberInputs {
    Comparer<T> comparer;
    const T* x;
    static constexpr int64_t bytes = Comparer<T>::bytes;

    void operator()(int64_t first, int64_t examples, void* memory, char* slots) const {
        comparer(x + first * comparer.comparisons.num_columns, examples, memory, slots);
    }
};

template <typename Inputs, typename Finish>
bool each_block(const LogicPlan& plan, const Inputs& inputs, int64_t rows, int threads, Finish&& finish) {
    Enough enough;
    const Counter counter(plan);
    const int64_t area = plan.slots * slot_bytes;
    parallel_for((rows + slot_examples - 1) / slot_examples, 1, threads, [&](int64_t begin, int64_t end) {
        char* slots = static_cast<char*>(scratch(area + Inputs::bytes));
        if (slots == nullptr) return enough.fail();
        for (int64_t block = begin; block < end; ++block) {
            const int64_t first = block * slot_examples, left = rows - first;
            const int64_t examples = left < slot_examples ? left : slot_examples;
            std::memset(slots, 0, slot_bytes);  // false, which no gate overwrites
            inputs(first, examples, slots + area, slots);
            run_all(plan, slots);
            finish(counter, slots, first, examples);
        }
    });
    return enough;
}

template <typename Inputs>
bool all_counts(const LogicPlan& plan, const Inputs& inputs, int32_t* counts, int64_t rows, int threads) {
    return each_block(plan, inputs, rows, threads,
                      [&](const Counter& counter, const char* slots, int64_t first, int64_t examples) {
                          counts_of(counter, slots, examples, counts + first * plan.k);
                      });
}

template <typename Inputs>
bool all_best(const LogicPlan& plan, const Inputs& inputs, int64_t* best, int64_t rows, int threads) {
    return each_block(plan, inputs, rows, threads,
                      [&](const Counter& counter, const char* slots, int64_t first, int64_t examples) {
                          best_of(counter, slots, examples, best + first);
                      });
}

template <typename T>
NumberInputs<T> number_inputs(const LogicPlan& plan, const LogicComparisons& comparisons, const T* x,
                              const void* thresholds) {
    return {{plan, comparisons, static_cast<const typename Compared<T>::type*>(thresholds)}, x};
}

}  // namespace

bool logic_counts(const LogicPlan* plan, const uint8_t* x, const uint8_t* thresholds, int32_t* counts, int64_t rows,
                  int threads) {
    return all_counts(*plan, BitInputs{*plan, x, thresholds, rows}, counts, rows, threads);
}

bool logic_best(const LogicPlan* plan, const uint8_t* x, const uint8_t* thresholds, int64_t* best, int64_t rows,
                int threads) {
    return all_best(*plan, BitInputs{*plan, x, thresholds, rows}, best, rows, threads);
}

template <typename T>
bool logic_compared_counts(const LogicPlan* plan, const LogicColumn* used, int64_t num_used, int64_t num_columns,
                           const T* x, const void* thresholds, int32_t* counts, int64_t rows, int threads) {
    const LogicComparisons comparisons{used, num_used, num_columns};
    return all_counts(*plan, number_inputs(*plan, comparisons, x, thresholds), counts, rows, threads);
}

template <typename T>
bool logic_compared_best(const LogicPlan* plan, const LogicColumn* used, int64_t num_used, int64_t num_columns,
                         const T* x, const void* thresholds, int64_t* best, int64_t rows, int threads) {
    const LogicComparisons comparisons{used, num_used, num_columns};
    return all_best(*plan, number_inputs(*plan, comparisons, x, thresholds), best, rows, threads);
}

#define SOFTLY_INSTANTIATE(T)                                                                                     \
    template bool logic_compared_counts(const LogicPlan*, const LogicColumn*, int64_t, int64_t, const T*,         \
                                        const void*, int32_t*, int64_t, int);                                     \
    template bool logic_compared_best(const LogicPlan*, const LogicColumn*, int64_t, int64_t, const T*,           \
                                      const void*, int64_t*, int64_t, int);
SOFTLY_INSTANTIATE(uint8_t)
SOFTLY_INSTANTIATE(float)
SOFTLY_INSTANTIATE(double)

}  // namespace softly::SOFTLY_ISA
