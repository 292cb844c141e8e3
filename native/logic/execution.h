// Circuits on many examples: 512 at a time, a bit each.
//
// All return false if memory runs out.
#pragma once

#include "core/isa.h"
#include "logic/plan.h"

namespace softly {

// A column that is compared: input i, from `begin` on, is true where it is at least thresholds[i]; from `equal` to `end`
// where it is equal to that.
struct LogicColumn {
    int64_t column, begin, equal, end;
};

struct LogicComparisons {
    const LogicColumn* used;
    int64_t num_used, num_columns;
};

}  // namespace softly

SOFTLY_DECLARE(
    // From bits: x is (rows, num_inputs), bytes; input i is true where x >= thresholds[i].
    // counts: (rows, k), how many outputs of each group of neighbours are true.
    bool logic_counts(const LogicPlan* plan, const uint8_t* x, const uint8_t* thresholds, int32_t* counts,
                      int64_t rows, int threads);

    // best: (rows,), the group with the largest count, the lowest one of ties.
    bool logic_best(const LogicPlan* plan, const uint8_t* x, const uint8_t* thresholds, int64_t* best, int64_t rows,
                    int threads);

    // The same from numbers: x is (rows, num_columns), and thresholds are as x is; for bytes they are int16, and 256 is
    // more than any of them. NaN is neither at least anything nor equal to it.
    template <typename T>
    bool logic_compared_counts(const LogicPlan* plan, const LogicColumn* used, int64_t num_used, int64_t num_columns,
                               const T* x, const void* thresholds, int32_t* counts, int64_t rows, int threads);
    template <typename T>
    bool logic_compared_best(const LogicPlan* plan, const LogicColumn* used, int64_t num_used, int64_t num_columns,
                             const T* x, const void* thresholds, int64_t* best, int64_t rows, int threads);
)
