#include "sorting/plan.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

namespace softly {
namespace {

using Pair = std::pair<int32_t, int32_t>;
using Layer = std::vector<Pair>;

// Rows of 128 bytes, of which a first level cache of 32 kB holds this many beside what streams through.
constexpr int32_t near_wires = 128;
// Fewer steps than this don't repay the overhead of walking over sets of near wires one by one.
constexpr size_t near_steps = 2;

struct StoredSchedule : Schedule {
    std::vector<int64_t> all_begin, all_slot;
    std::vector<Call> all_calls;
};

struct Plan : SortingPlan {
    std::vector<int32_t> all_wires, all_layers, all_output, all_rows, all_links;
    std::vector<Run> all_runs;
    mutable std::array<std::once_flag, 6> made;
    mutable std::array<std::unique_ptr<StoredSchedule>, 6> schedules;
};

std::vector<Layer> reaching(int64_t n, const int32_t* wires, const int32_t* offsets, int64_t depth,
                            const std::vector<int32_t>& output) {
    std::vector<char> needed(n, 0);
    for (int32_t wire : output) needed[wire] = 1;
    std::vector<Layer> layers(depth);
    for (int64_t l = depth - 1; l >= 0; --l) {
        for (int32_t c = offsets[l]; c < offsets[l + 1]; ++c) {
            const int32_t i = wires[2 * c], j = wires[2 * c + 1];
            if (!needed[i] && !needed[j]) continue;
            needed[i] = needed[j] = 1;
            layers[l].push_back({i, j});
        }
    }
    std::erase_if(layers, [](const Layer& layer) { return layer.empty(); });
    return layers;
}

// Sets of wires that comparators connect.
struct Sets {
    std::vector<int32_t> parent, low, high;

    explicit Sets(int32_t n) : parent(n), low(n), high(n) {
        std::iota(parent.begin(), parent.end(), 0);
        low = high = parent;
    }
    int32_t find(int32_t wire) {
        while (parent[wire] != wire) wire = parent[wire] = parent[parent[wire]];
        return wire;
    }
    // The number of wires from the first to the last of the united set.
    int32_t unite(Pair pair) {
        int32_t a = find(pair.first), b = find(pair.second);
        if (b < a) std::swap(a, b);
        parent[b] = a;
        low[a] = std::min(low[a], low[b]);
        high[a] = std::max(high[a], high[b]);
        return high[a] - low[a] + 1;
    }
};

// Two layers that are fused, or a single one.
struct Step {
    size_t first, layers;
};

// An odd number of layers leaves the first one alone, where least of P is non-zero.
std::vector<Step> steps(size_t depth) {
    std::vector<Step> result;
    if (depth % 2) result.push_back({0, 1});
    for (size_t first = depth % 2; first < depth; first += 2) result.push_back({first, 2});
    return result;
}

// Steps first to last - 1; `near`: they connect near wires only.
struct Stretch {
    size_t first, last;
    bool near;
};

std::vector<Stretch> stretches(const std::vector<Layer>& layers, const std::vector<Step>& steps, int32_t n) {
    std::vector<Stretch> result;
    size_t first = 0;
    while (first < steps.size()) {
        size_t last = first;
        Sets sets(n);
        for (bool near = true; near && last < steps.size(); last += near) {
            for (size_t l = steps[last].first; l < steps[last].first + steps[last].layers; ++l) {
                for (Pair pair : layers[l]) near = sets.unite(pair) <= near_wires && near;
            }
        }
        if (last - first >= std::min(near_steps, steps.size())) {
            result.push_back({first, last, true});
        } else if (!result.empty() && !result.back().near) {
            result.back().last = last = first + 1;
        } else {
            result.push_back({first, last = first + 1, false});
        }
        first = last;
    }
    return result;
}

// Compiles one or two layers, restricted to comparators of one set of wires, into runs.
class Fusion {
  public:
    explicit Fusion(Plan& plan) : plan_(plan), partner_a_(plan.n, {-1, -1}), partner_b_(plan.n, {-1, -1}) {}

    // `first` and `second` are numbers of comparators: where the layers' next ones go. Appends to `placed` in order.
    void compile(const Layer& a, const Layer& b, int32_t first, int32_t second, Layer& placed_a, Layer& placed_b,
                 std::vector<Run>& runs) {
        std::vector<Pair>&partner_a = partner_a_, &partner_b = partner_b_;
        for (int32_t k = 0; k < static_cast<int32_t>(a.size()); ++k) join(partner_a, a[k], k);
        for (int32_t k = 0; k < static_cast<int32_t>(b.size()); ++k) join(partner_b, b[k], k);
        std::vector<char> used_a(a.size(), 0), used_b(b.size(), 0);
        const auto take_a = [&](int32_t wire) {
            const int32_t index = partner_a[wire].second;
            placed_a.push_back(a[index]);
            used_a[index] = 1;
        };
        const auto take_b = [&](int32_t wire) {
            const int32_t index = partner_b[wire].second;
            placed_b.push_back(b[index]);
            used_b[index] = 1;
        };

        Run quads{Run::quads, 0, rows(), first, second, 0};
        for (const Pair& pair : a) {
            const int32_t r0 = pair.first, r1 = pair.second, r2 = partner_b[r1].first;
            const int32_t r3 = r2 < 0 ? -1 : partner_a[r2].first;
            if (used_a[partner_a[r0].second] || r3 < 0 || partner_b[r3].first != r0 || r2 == r0) continue;
            take_a(r0), take_a(r2), take_b(r1), take_b(r3);
            plan_.all_rows.insert(plan_.all_rows.end(), {r0, r1, r2, r3});
            ++quads.count;
        }
        emit(quads, runs);

        Run chains{Run::chains, 0, rows(), first + 2 * quads.count, 0, static_cast<int32_t>(plan_.all_links.size())};
        int32_t linked = second + 2 * quads.count;
        for (const Pair& start : a) {
            if (used_a[partner_a[start.first].second]) continue;
            // Back to the path's first pair; a longer cycle comes back to its start and is cut there.
            int32_t u = std::min(start.first, start.second);
            for (;;) {
                const int32_t before = partner_b[u].first, pair_before = before < 0 ? -1 : partner_a[before].first;
                if (pair_before < 0 || pair_before == std::min(start.first, start.second)) break;
                u = pair_before;
            }
            const int32_t next = partner_b[partner_a[u].first].first;
            if (next < 0 || partner_a[next].first < 0) continue;  // a pair alone is no chain
            for (bool fresh = true; u >= 0 && !used_a[partner_a[u].second]; fresh = false) {
                take_a(u);
                if (!fresh) take_b(u);
                const int32_t v = partner_a[u].first;
                plan_.all_links.push_back(fresh ? -1 : linked++);
                plan_.all_rows.insert(plan_.all_rows.end(), {u, v});
                ++chains.count;
                u = partner_b[v].first;
                if (u >= 0 && partner_a[u].first < 0) break;
            }
        }
        emit(chains, runs);

        // What is left of the first layer, then of the second.
        alone(a, used_a, first + 2 * quads.count + chains.count, placed_a, runs);
        alone(b, used_b, linked, placed_b, runs);
        for (Pair pair : a) partner_a[pair.first] = partner_a[pair.second] = {-1, -1};
        for (Pair pair : b) partner_b[pair.first] = partner_b[pair.second] = {-1, -1};
    }

  private:
    static void join(std::vector<Pair>& partner, Pair pair, int32_t index) {
        partner[pair.first] = {pair.second, index};
        partner[pair.second] = {pair.first, index};
    }
    int32_t rows() const { return static_cast<int32_t>(plan_.all_rows.size()); }
    static void emit(const Run& run, std::vector<Run>& runs) {
        if (run.count > 0) runs.push_back(run);
    }
    void alone(const Layer& layer, const std::vector<char>& used, int32_t number, Layer& placed,
               std::vector<Run>& runs) {
        Run run{Run::singles, 0, rows(), number, 0, 0};
        for (size_t k = 0; k < layer.size(); ++k) {
            if (used[k]) continue;
            placed.push_back(layer[k]);
            plan_.all_rows.insert(plan_.all_rows.end(), {layer[k].first, layer[k].second});
            ++run.count;
        }
        emit(run, runs);
    }

    Plan& plan_;
    std::vector<Pair> partner_a_, partner_b_;  // of every wire: the other wire, and the comparator's index in its layer
};

void compile(Plan& plan, const std::vector<Layer>& layers) {
    Fusion fusion(plan);
    plan.all_layers.push_back(0);
    for (const Layer& layer : layers) {
        plan.all_layers.push_back(plan.all_layers.back() + static_cast<int32_t>(layer.size()));
    }

    const std::vector<Step> all_steps = steps(layers.size());
    for (const Stretch& stretch : stretches(layers, all_steps, plan.n)) {
        // Number the sets of wires that run one after the other.
        std::vector<int32_t> set(plan.n, 0);
        int32_t count = 1;
        if (stretch.near) {
            Sets sets(plan.n);
            const Step &begin = all_steps[stretch.first], &end = all_steps[stretch.last - 1];
            for (size_t l = begin.first; l < end.first + end.layers; ++l) {
                for (Pair pair : layers[l]) sets.unite(pair);
            }
            // Sets are gathered to blocks of near wires: small ones would make for short runs.
            count = 0;
            std::vector<int32_t> number(plan.n, -1), first(plan.n, 0);
            for (int32_t wire = 0; wire < plan.n; ++wire) {
                const int32_t root = sets.find(wire);
                if (number[root] < 0) {
                    const bool fits = count > 0 && sets.high[root] - first[count - 1] < near_wires;
                    if (!fits) first[count++] = wire;
                    number[root] = count - 1;
                }
                set[wire] = number[root];
            }
        }
        std::vector<std::vector<Run>> runs(count);
        for (size_t step = stretch.first; step < stretch.last; ++step) {
            const size_t l = all_steps[step].first;
            std::vector<Layer> a(count), b(count);
            for (Pair pair : layers[l]) a[set[pair.first]].push_back(pair);
            if (all_steps[step].layers == 2) {
                for (Pair pair : layers[l + 1]) b[set[pair.first]].push_back(pair);
            }
            Layer placed_a, placed_b;
            for (int32_t s = 0; s < count; ++s) {
                const auto first = plan.all_layers[l] + static_cast<int32_t>(placed_a.size());
                const auto second = plan.all_layers[l + 1] + static_cast<int32_t>(placed_b.size());
                fusion.compile(a[s], b[s], first, second, placed_a, placed_b, runs[s]);
            }
            for (const Layer* placed : {&placed_a, &placed_b}) {
                for (Pair pair : *placed) plan.all_wires.insert(plan.all_wires.end(), {pair.first, pair.second});
            }
        }
        for (const auto& part : runs) plan.all_runs.insert(plan.all_runs.end(), part.begin(), part.end());
    }
}

// For every granule of columns, the first and the last operation of a run that it takes part in.
class Reach {
  public:
    Reach(const SortingPlan& plan, int32_t columns)
        : plan_(plan),
          columns_(columns),
          granules_((plan.n + columns - 1) / columns),
          low_(plan.n),
          high_(plan.n),
          begin_(granules_),
          end_(granules_),
          free_(granules_ + 1) {
        std::iota(low_.begin(), low_.end(), 0);
        high_ = low_;
    }

    // Call for every run in order.
    void advance(const Run& run) {
        std::fill(begin_.begin(), begin_.end(), 0);
        std::fill(end_.begin(), end_.end(), 0);
        const int32_t* rows = plan_.rows + run.rows;
        const int each = run.kind == Run::quads ? 4 : 2;
        intervals_.clear();
        for (int32_t k = 0; k < run.count; ++k) {
            int32_t low = plan_.n, high = -1;
            for (int r = 0; r < each; ++r) {
                low = std::min(low, low_[rows[each * k + r]]);
                high = std::max(high, high_[rows[each * k + r]]);
            }
            intervals_.push_back({low, high});
        }
        reset();
        for (int32_t k = 0; k < run.count; ++k) claim(intervals_[k], [&](int32_t g) { begin_[g] = k; });
        reset();
        for (int32_t k = run.count - 1; k >= 0; --k) claim(intervals_[k], [&](int32_t g) { end_[g] = k + 1; });

        for (int32_t k = 0; k < run.count; ++k) {
            for (int r = 0; r < each; ++r) {
                std::tie(low_[rows[each * k + r]], high_[rows[each * k + r]]) = intervals_[k];
            }
        }
        if (run.kind != Run::chains) return;
        const int32_t* links = plan_.links + run.links;
        for (int32_t k = 1; k < run.count; ++k) {
            if (links[k] < 0) continue;
            const int32_t v = rows[2 * k - 1], u = rows[2 * k];
            low_[v] = low_[u] = std::min(low_[v], low_[u]);
            high_[v] = high_[u] = std::max(high_[v], high_[u]);
        }
        // A link carries what a pair has to its neighbours in the chain, which take part then.
        for (int32_t g = 0; g < granules_; ++g) {
            if (begin_[g] == end_[g]) continue;
            if (links[begin_[g]] >= 0) --begin_[g];
            if (end_[g] < run.count && links[end_[g]] >= 0) ++end_[g];
        }
    }

    int32_t granules() const { return granules_; }
    int32_t begin(int32_t granule) const { return begin_[granule]; }
    int32_t end(int32_t granule) const { return end_[granule]; }

  private:
    void reset() { std::iota(free_.begin(), free_.end(), 0); }
    int32_t next_free(int32_t granule) {
        while (free_[granule] != granule) granule = free_[granule] = free_[free_[granule]];
        return granule;
    }
    template <typename F>
    void claim(Pair columns, F&& claimed) {
        const int32_t last = columns.second / columns_;
        for (int32_t g = next_free(columns.first / columns_); g <= last; g = next_free(g)) {
            claimed(g);
            free_[g] = g + 1;
        }
    }

    const SortingPlan& plan_;
    int32_t columns_, granules_;
    std::vector<int32_t> low_, high_;  // the first and the last column that can be non-zero on a wire
    std::vector<int32_t> begin_, end_, free_;
    std::vector<Pair> intervals_;
};

std::unique_ptr<StoredSchedule> make_schedule(const SortingPlan& plan, int granules, int columns) {
    Reach reach(plan, columns);
    const int32_t strips = (reach.granules() + granules - 1) / granules;
    std::vector<std::vector<Call>> calls(strips);
    for (int32_t r = 0; r < plan.runs_count; ++r) {
        const Run& run = plan.runs[r];
        reach.advance(run);
        for (int32_t s = 0; s < strips; ++s) {
            const int32_t first = s * granules, width = std::min(granules, reach.granules() - first);
            int32_t begin = run.count, end = 0;
            int64_t apart = 0;
            for (int32_t g = first; g < first + width; ++g) {
                if (reach.begin(g) == reach.end(g)) continue;
                begin = std::min(begin, reach.begin(g));
                end = std::max(end, reach.end(g));
                apart += reach.end(g) - reach.begin(g);
            }
            if (begin >= end) continue;
            // Columns together share indices, weights and sums: worth it unless more than a third would be zeros.
            if (2 * int64_t{end - begin} * width <= 3 * apart) {
                calls[s].push_back({r, begin, end, 0, width, 0});
                continue;
            }
            for (int32_t g = first; g < first + width; ++g) {
                if (reach.begin(g) == reach.end(g)) continue;
                calls[s].push_back({r, reach.begin(g), reach.end(g), g - first, 1, 0});
            }
        }
    }
    auto result = std::make_unique<StoredSchedule>();
    result->all_begin.push_back(0);
    for (auto& strip : calls) {
        int64_t slot = 0;
        for (Call& call : strip) {
            call.slot = slot;
            slot += int64_t{call.end - call.begin} * slots(plan.runs[call.run].kind) * call.granules;
        }
        result->all_slot.push_back(slot);
        result->all_calls.insert(result->all_calls.end(), strip.begin(), strip.end());
        result->all_begin.push_back(static_cast<int64_t>(result->all_calls.size()));
    }
    result->strips = strips;
    result->begin = result->all_begin.data();
    result->calls = result->all_calls.data();
    result->slot = result->all_slot.data();
    return result;
}

}  // namespace

SortingPlan* create_sorting_plan(int64_t n, const int32_t* wires, const int32_t* offsets, int64_t depth,
                                 const int32_t* output, int64_t outputs) {
    auto plan = std::make_unique<Plan>();
    plan->n = static_cast<int32_t>(n);
    plan->all_output.assign(output, output + outputs);
    const std::vector<Layer> layers = reaching(n, wires, offsets, depth, plan->all_output);
    compile(*plan, layers);
    plan->depth = static_cast<int32_t>(layers.size());
    plan->size = plan->all_layers.back();
    plan->runs_count = static_cast<int32_t>(plan->all_runs.size());
    plan->outputs = static_cast<int32_t>(outputs);
    plan->wires = plan->all_wires.data();
    plan->layers = plan->all_layers.data();
    plan->output = plan->all_output.data();
    plan->runs = plan->all_runs.data();
    plan->rows = plan->all_rows.data();
    plan->links = plan->all_links.data();
    return plan.release();
}

void destroy_sorting_plan(SortingPlan* plan) { delete static_cast<Plan*>(plan); }

const Schedule& schedule(const SortingPlan& plan, int granules, int columns) {
    const Plan& whole = static_cast<const Plan&>(plan);
    const int index = (granules == 4 ? 2 : granules - 1) + (columns == 8 ? 0 : 3);
    std::call_once(whole.made[index], [&] { whole.schedules[index] = make_schedule(plan, granules, columns); });
    return *whole.schedules[index];
}

}  // namespace softly
