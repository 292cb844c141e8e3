// How a circuit runs: compiled once per circuit, for every instruction set.
//
// Values live in slots of 512 examples, a bit each: a cache line. A slot may hold the negation of its gate: with this
// freedom "and", "and not", "or" and "xor" are enough, one instruction each. Gates run level by level, within a level by
// operation, so that no gate has to be asked what it is. A gate's slot is free for another one when its last reader has
// run.
#pragma once

#include <cstdint>

namespace softly {

inline constexpr int64_t slot_bytes = 64;
inline constexpr int64_t slot_examples = 8 * slot_bytes;

struct LogicRun {
    enum Operation : int32_t { both, second_only, either, different };  // a & b, ~a & b, a | b, a ^ b
    Operation operation;
    int64_t begin, end;  // which gates
};

struct LogicGate {
    uint32_t a, b, out;  // where slots begin, in bytes
};

struct LogicOutput {
    uint32_t slot;  // where it begins, in bytes
    uint32_t negated;  // 0 or 1
};

struct LogicPlan {
    int64_t num_inputs, num_outputs, k, slots, num_runs;
    const uint32_t* input;  // num_inputs: where slots begin, in bytes; inputs that nothing reads share one
    const LogicRun* runs;
    const LogicGate* gates;
    const LogicOutput* output;  // num_outputs
};

// Node 0 is false, nodes 1 to num_inputs are the inputs, the gates follow, each after its inputs; a literal is
// 2 * node + negated. kinds: 0 for "and", 1 for "xor" of literals that are not negated. Null if memory runs out, or if
// there could be more slots than 32 bits can address.
const LogicPlan* create_logic_plan(int64_t num_inputs, int64_t num_gates, const uint8_t* kinds, const int64_t* first,
                                   const int64_t* second, const int64_t* levels, const int64_t* outputs,
                                   int64_t num_outputs, int64_t k);
void destroy_logic_plan(const LogicPlan* plan);

}  // namespace softly
