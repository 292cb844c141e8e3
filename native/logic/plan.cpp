#include "logic/plan.h"

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

namespace softly {
namespace {

constexpr int64_t most_slots = (int64_t{1} << 32) / slot_bytes;

struct Plan : LogicPlan {
    std::vector<uint32_t> all_input;
    std::vector<LogicOutput> all_output;
    std::vector<LogicRun> all_runs;
    std::vector<LogicGate> all_gates;
};

// Slots, by where they begin. They are handed out again as soon as they are given back: the one that was used last is
// the one in the cache.
struct Slots {
    std::vector<uint32_t> free;
    int64_t count = 0;

    uint32_t take() {
        if (free.empty()) return static_cast<uint32_t>(slot_bytes * count++);
        const uint32_t slot = free.back();
        free.pop_back();
        return slot;
    }
};

struct Step {
    LogicRun::Operation operation;
    int64_t gate, a, b;  // nodes
};

Plan* compile(int64_t num_inputs, int64_t num_gates, const uint8_t* kinds, const int64_t* first, const int64_t* second,
              const int64_t* levels, const int64_t* outputs, int64_t num_outputs, int64_t k) {
    const int64_t base = num_inputs + 1, nodes = base + num_gates;
    std::vector<uint32_t> readers(nodes, 0), slot(nodes, 0);
    for (int64_t g = 0; g < num_gates; ++g) ++readers[first[g] >> 1], ++readers[second[g] >> 1];
    for (int64_t o = 0; o < num_outputs; ++o) ++readers[outputs[o] >> 1];  // which are read at the very end

    auto plan = std::make_unique<Plan>();
    Slots slots;
    slot[0] = slots.take();  // false
    const uint32_t unread = slots.take();
    plan->all_input.resize(num_inputs);
    for (int64_t i = 0; i < num_inputs; ++i) {
        slot[1 + i] = readers[1 + i] ? slots.take() : unread;
        plan->all_input[i] = slot[1 + i];
    }

    // The gates of each level, in their order.
    int64_t depth = 0;
    for (int64_t g = 0; g < num_gates; ++g) depth = std::max(depth, levels[g]);
    std::vector<int64_t> begin(depth + 2, 0), order(num_gates);
    for (int64_t g = 0; g < num_gates; ++g) ++begin[levels[g]];
    for (int64_t level = 1, total = 0; level <= depth + 1; ++level) {
        const int64_t count = level <= depth ? begin[level] : 0;
        begin[level] = total;
        total += count;
    }
    std::vector<int64_t> place(begin);
    for (int64_t g = 0; g < num_gates; ++g) order[place[levels[g]]++] = g;

    std::vector<uint8_t> negated(nodes, 0);
    plan->all_gates.reserve(num_gates);
    std::vector<Step> steps;
    for (int64_t level = 1; level <= depth; ++level) {
        steps.clear();
        for (int64_t at = begin[level]; at < begin[level + 1]; ++at) {
            const int64_t g = order[at], node = base + g;
            int64_t a = first[g] >> 1, b = second[g] >> 1;
            const int not_a = (first[g] & 1) ^ negated[a], not_b = (second[g] & 1) ^ negated[b];
            LogicRun::Operation operation = LogicRun::different;
            if (kinds[g] == 1) {
                negated[node] = static_cast<uint8_t>(not_a ^ not_b);
            } else if (not_a && not_b) {
                operation = LogicRun::either;
                negated[node] = 1;
            } else {
                operation = not_a || not_b ? LogicRun::second_only : LogicRun::both;
                if (not_b) std::swap(a, b);
            }
            steps.push_back({operation, node, a, b});
        }
        // Neighbours in memory for the first input, as far as that goes; the second is anywhere.
        std::sort(steps.begin(), steps.end(), [&](const Step& x, const Step& y) {
            return x.operation != y.operation ? x.operation < y.operation : slot[x.a] < slot[y.a];
        });
        for (const Step& step : steps) {
            const int64_t number = static_cast<int64_t>(plan->all_gates.size());
            if (plan->all_runs.empty() || plan->all_runs.back().operation != step.operation) {
                plan->all_runs.push_back({step.operation, number, number});
            }
            ++plan->all_runs.back().end;
            const uint32_t a = slot[step.a], b = slot[step.b];
            if (--readers[step.a] == 0) slots.free.push_back(a);
            if (--readers[step.b] == 0) slots.free.push_back(b);
            const uint32_t out = slot[step.gate] = slots.take();
            plan->all_gates.push_back({a, b, out});
        }
    }
    plan->all_output.resize(num_outputs);
    for (int64_t o = 0; o < num_outputs; ++o) {
        const int64_t node = outputs[o] >> 1;
        plan->all_output[o] = {slot[node], static_cast<uint32_t>(outputs[o] & 1) ^ negated[node]};
    }
    plan->num_inputs = num_inputs;
    plan->num_outputs = num_outputs;
    plan->k = k;
    plan->slots = slots.count;
    plan->num_runs = static_cast<int64_t>(plan->all_runs.size());
    plan->input = plan->all_input.data();
    plan->runs = plan->all_runs.data();
    plan->gates = plan->all_gates.data();
    plan->output = plan->all_output.data();
    return plan.release();
}

}  // namespace

const LogicPlan* create_logic_plan(int64_t num_inputs, int64_t num_gates, const uint8_t* kinds, const int64_t* first,
                                   const int64_t* second, const int64_t* levels, const int64_t* outputs,
                                   int64_t num_outputs, int64_t k) {
    if (num_inputs + num_gates + 2 > most_slots) return nullptr;
    try {
        return compile(num_inputs, num_gates, kinds, first, second, levels, outputs, num_outputs, k);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void destroy_logic_plan(const LogicPlan* plan) { delete static_cast<const Plan*>(plan); }

}  // namespace softly
