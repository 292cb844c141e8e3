// The Python module softly._native: kernels by name, nothing else.
//
// Arguments are not checked here. A pointer arrives as an integer, and softly/native.py, the only caller, has
// checked device, dtype, contiguity and shapes before it took one.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <nanobind/nanobind.h>

#include "core/distributions.h"
#include "estimators/fisher_step.h"
#include "estimators/grid_path.h"
#include "logic/gate_coefficients.h"
#include "programs/fused.h"
#include "core/isa.h"
#include "sorting/fastsort.h"
#include "selection/largest.h"
#include "logic/execution.h"
#include "logic/stack.h"
#include "selection/logsumexp.h"
#include "sorting/network_sort.h"
#include "sorting/network_rows.h"
#include "sorting/network_second.h"
#include "programs/tape.h"
#include "rendering/blend.h"
#include "rendering/blend_backward.h"
#include "rendering/contenders.h"
#include "rendering/rasterize.h"
#include "rendering/silhouette.h"
#include "rendering/silhouette_backward.h"
#include "selection/threshold.h"
#include "core/tnorms.h"

namespace nb = nanobind;

namespace {

template <typename T>
struct Argument {
    using type = T;
    static T restore(type value) { return value; }
};

template <typename T>
struct Argument<T*> {
    using type = std::uintptr_t;
    static T* restore(type value) { return reinterpret_cast<T*>(value); }
};

// Adds a kernel to the module: pointers become integers, and the GIL is released while it runs.
template <typename Result, typename... Args>
[[maybe_unused]] void define(nb::module_& m, const char* name, Result (*kernel)(Args...)) {
    m.def(name, [kernel](typename Argument<Args>::type... args) -> Result {
        nb::gil_scoped_release release;
        return kernel(Argument<Args>::restore(args)...);
    });
}

}  // namespace

NB_MODULE(_native, m) {
    m.def("isa", [] { return softly::name(softly::isa()); });

    define(m, "euclidean_f32", SOFTLY_SELECT(euclidean<float>));
    define(m, "euclidean_f64", SOFTLY_SELECT(euclidean<double>));
    define(m, "hamacher_f32", SOFTLY_SELECT(hamacher<float>));
    define(m, "hamacher_f64", SOFTLY_SELECT(hamacher<double>));
    define(m, "hamacher_backward_f32", SOFTLY_SELECT(hamacher_backward<float>));
    define(m, "hamacher_backward_f64", SOFTLY_SELECT(hamacher_backward<double>));

    define(m, "permutahedron_f32", SOFTLY_SELECT(permutahedron<float>));
    define(m, "permutahedron_f64", SOFTLY_SELECT(permutahedron<double>));
    define(m, "permutahedron_backward_f32", SOFTLY_SELECT(permutahedron_backward<float>));
    define(m, "permutahedron_backward_f64", SOFTLY_SELECT(permutahedron_backward<double>));

    // In the order of their numbers.
    m.def("distributions", [] {
        nb::list names;
        for (const char* name : softly::distribution_names) names.append(name);
        return nb::tuple(names);
    });
    define(
        m, "sorting_plan",
        +[](std::int64_t n, const std::int32_t* wires, const std::int32_t* offsets, std::int64_t depth,
            const std::int32_t* output, std::int64_t outputs) {
            return reinterpret_cast<std::uintptr_t>(
                softly::create_sorting_plan(n, wires, offsets, depth, output, outputs));
        });
    define(m, "sorting_plan_size", +[](const softly::SortingPlan* plan) { return plan->size; });
    define(m, "sorting_plan_destroy", &softly::destroy_sorting_plan);
    define(m, "network_values_f32", SOFTLY_SELECT(network_values<float>));
    define(m, "network_values_f64", SOFTLY_SELECT(network_values<double>));
    define(m, "network_values_backward_f32", SOFTLY_SELECT(network_values_backward<float>));
    define(m, "network_values_backward_f64", SOFTLY_SELECT(network_values_backward<double>));
    define(m, "network_matrix_f32", SOFTLY_SELECT(network_matrix<float>));
    define(m, "network_matrix_f64", SOFTLY_SELECT(network_matrix<double>));
    define(m, "network_matrix_backward_f32", SOFTLY_SELECT(network_matrix_backward<float>));
    define(m, "network_matrix_backward_f64", SOFTLY_SELECT(network_matrix_backward<double>));
    define(m, "network_second_f32", SOFTLY_SELECT(network_second<float>));
    define(m, "network_second_f64", SOFTLY_SELECT(network_second<double>));
    define(m, "network_rows_f32", SOFTLY_SELECT(network_rows<float>));
    define(m, "network_rows_f64", SOFTLY_SELECT(network_rows<double>));
    define(m, "network_rows_backward_f32", SOFTLY_SELECT(network_rows_backward<float>));
    define(m, "network_rows_backward_f64", SOFTLY_SELECT(network_rows_backward<double>));
    define(m, "threshold_f32", SOFTLY_SELECT(threshold<float>));
    define(m, "threshold_f64", SOFTLY_SELECT(threshold<double>));
    define(m, "largest_f32", SOFTLY_SELECT(largest<float>));
    define(m, "largest_f64", SOFTLY_SELECT(largest<double>));
    define(m, "logsumexp_f32", SOFTLY_SELECT(logsumexp<float>));
    define(m, "logsumexp_f64", SOFTLY_SELECT(logsumexp<double>));
    define(m, "logsumexp_backward_f32", SOFTLY_SELECT(logsumexp_backward<float>));
    define(m, "logsumexp_backward_f64", SOFTLY_SELECT(logsumexp_backward<double>));

    define(m, "blend_f64", SOFTLY_SELECT(blend));
    define(m, "blend_backward_f64", SOFTLY_SELECT(blend_backward));
    define(m, "contenders_f64", SOFTLY_SELECT(contenders));
    define(m, "rasterize_f32", SOFTLY_SELECT(rasterize<float>));
    define(m, "rasterize_f64", SOFTLY_SELECT(rasterize<double>));
    define(m, "silhouette_f32", SOFTLY_SELECT(silhouette<float>));
    define(m, "silhouette_f64", SOFTLY_SELECT(silhouette<double>));
    define(m, "silhouette_backward_f32", SOFTLY_SELECT(silhouette_backward<float>));
    define(m, "silhouette_backward_f64", SOFTLY_SELECT(silhouette_backward<double>));

    define(m, "logic_forward_f32", SOFTLY_SELECT(logic_forward<float>));
    define(m, "logic_forward_f64", SOFTLY_SELECT(logic_forward<double>));
    define(m, "logic_forward_bf16", SOFTLY_SELECT(logic_forward<softly::Bfloat16>));
    define(m, "logic_backward_f32", SOFTLY_SELECT(logic_backward<float>));
    define(m, "logic_backward_f64", SOFTLY_SELECT(logic_backward<double>));
    define(m, "logic_backward_bf16", SOFTLY_SELECT(logic_backward<softly::Bfloat16>));
    define(m, "gate_coefficients_f32", SOFTLY_SELECT(gate_coefficients<float>));
    define(m, "gate_coefficients_f64", SOFTLY_SELECT(gate_coefficients<double>));
    define(m, "gate_coefficients_backward_f32", SOFTLY_SELECT(gate_coefficients_backward<float>));
    define(m, "gate_coefficients_backward_f64", SOFTLY_SELECT(gate_coefficients_backward<double>));

    define(
        m, "logic_plan",
        +[](std::int64_t inputs, std::int64_t gates, const std::uint8_t* kinds, const std::int64_t* first,
            const std::int64_t* second, const std::int64_t* levels, const std::int64_t* outputs,
            std::int64_t num_outputs, std::int64_t k) {
            return reinterpret_cast<std::uintptr_t>(
                softly::create_logic_plan(inputs, gates, kinds, first, second, levels, outputs, num_outputs, k));
        });
    define(m, "logic_plan_slots", +[](const softly::LogicPlan* plan) { return plan->slots; });
    define(m, "logic_plan_destroy", &softly::destroy_logic_plan);
    define(m, "logic_counts", SOFTLY_SELECT(logic_counts));
    define(m, "logic_best", SOFTLY_SELECT(logic_best));
    define(m, "logic_compared_counts_u8", SOFTLY_SELECT(logic_compared_counts<std::uint8_t>));
    define(m, "logic_compared_counts_f32", SOFTLY_SELECT(logic_compared_counts<float>));
    define(m, "logic_compared_counts_f64", SOFTLY_SELECT(logic_compared_counts<double>));
    define(m, "logic_compared_best_u8", SOFTLY_SELECT(logic_compared_best<std::uint8_t>));
    define(m, "logic_compared_best_f32", SOFTLY_SELECT(logic_compared_best<float>));
    define(m, "logic_compared_best_f64", SOFTLY_SELECT(logic_compared_best<double>));

    define(m, "levenshtein_f32", SOFTLY_SELECT(levenshtein<float>));
    define(m, "levenshtein_f64", SOFTLY_SELECT(levenshtein<double>));
    define(m, "levenshtein_backward_f32", SOFTLY_SELECT(levenshtein_backward<float>));
    define(m, "levenshtein_backward_f64", SOFTLY_SELECT(levenshtein_backward<double>));
    define(m, "shortest_path_f32", SOFTLY_SELECT(shortest_path<float>));
    define(m, "shortest_path_f64", SOFTLY_SELECT(shortest_path<double>));
    define(m, "shortest_path_backward_f32", SOFTLY_SELECT(shortest_path_backward<float>));
    define(m, "shortest_path_backward_f64", SOFTLY_SELECT(shortest_path_backward<double>));

    define(m, "fisher_step_f32", SOFTLY_SELECT(fisher_step<float>));
    define(m, "fisher_step_f64", SOFTLY_SELECT(fisher_step<double>));
    define(m, "grid_path_f32", SOFTLY_SELECT(grid_path<float>));
    define(m, "grid_path_f64", SOFTLY_SELECT(grid_path<double>));

    // In the order of their numbers.
    m.def("tape_operations", [] {
        nb::list names;
        for (const char* name : softly::operation_names) names.append(name);
        return nb::tuple(names);
    });
    define(m, "tape_f32", SOFTLY_SELECT(tape<float>));
    define(m, "tape_f64", SOFTLY_SELECT(tape<double>));
    define(m, "tape_backward_f32", SOFTLY_SELECT(tape_backward<float>));
    define(m, "tape_backward_f64", SOFTLY_SELECT(tape_backward<double>));
}
