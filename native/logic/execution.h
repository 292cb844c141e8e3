// Circuits on many examples: 512 at a time, a bit each.
//
// x is (rows, num_inputs), bytes; input i is true where x >= thresholds[i]. All return false if memory runs out.
#pragma once

#include "core/isa.h"
#include "logic/plan.h"

SOFTLY_DECLARE(
    // counts: (rows, k), how many outputs of each group of neighbours are true.
    bool logic_counts(const LogicPlan* plan, const uint8_t* x, const uint8_t* thresholds, int32_t* counts,
                      int64_t rows, int threads);

    // best: (rows,), the group with the largest count, the lowest one of ties.
    bool logic_best(const LogicPlan* plan, const uint8_t* x, const uint8_t* thresholds, int64_t* best, int64_t rows,
                    int threads);
)
