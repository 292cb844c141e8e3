// Tries kernels on a platform that has no Python here: values, gradients and threads, beside plain loops in double.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "core/tnorms.h"
#include "selection/logsumexp.h"
#include "sorting/network_sort.h"
#include "sorting/plan.h"

namespace {

using namespace softly::SOFTLY_ISA;

int failures = 0, checks = 0;

void near(const char* what, double ours, double theirs, double tolerance) {
    ++checks;
    if (!(std::fabs(ours - theirs) <= tolerance * (1 + std::fabs(theirs)))) {
        std::printf("%s: %.9g, and %.9g expected\n", what, ours, theirs);
        ++failures;
    }
}

double cauchy(double x) { return 0.5 + std::atan(x) / 3.14159265358979323846; }
double logistic(double x) { return 1 / (1 + std::exp(-x)); }

template <typename T>
std::vector<T> numbers(int64_t count, double low, double high) {
    std::vector<T> result(count);
    uint64_t state = 1;
    for (auto& x : result) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x = static_cast<T>(low + (high - low) * static_cast<double>(state >> 11) * 0x1p-53);
    }
    return result;
}

// An odd-even network of n wires.
template <typename T>
void sorting(int number, double (*cdf)(double), double tolerance) {
    const int n = 9, batch = 70;
    std::vector<int32_t> wires, offsets{0}, output;
    for (int layer = 0; layer < n; ++layer) {
        for (int i = layer % 2; i + 1 < n; i += 2) wires.insert(wires.end(), {i, i + 1});
        offsets.push_back(static_cast<int32_t>(wires.size() / 2));
    }
    for (int i = 0; i < n; ++i) output.push_back(i);
    auto* plan = softly::create_sorting_plan(n, wires.data(), offsets.data(), n, output.data(), n);
    const auto x = numbers<T>(batch * n, -1, 1);
    std::vector<T> out(batch * n), kept(batch * plan->size), ones(batch * n, T(1)), grad(batch * n);
    const double steepness = 4;
    if (!network_values<T>(plan, number, -1.0, steepness, x.data(), out.data(), kept.data(), batch, 2)) ++failures;
    if (!network_values_backward<T>(plan, kept.data(), ones.data(), grad.data(), batch, 2)) ++failures;
    for (int b = 0; b < batch; ++b) {
        std::vector<double> y(x.begin() + b * n, x.begin() + (b + 1) * n);
        for (size_t k = 0; k < wires.size(); k += 2) {
            const double a = y[wires[k]], c = y[wires[k + 1]], keep = cdf(steepness * (c - a));
            y[wires[k]] = keep * a + (1 - keep) * c;
            y[wires[k + 1]] = keep * c + (1 - keep) * a;
        }
        // A swap keeps the sum, so that the gradient of the sum is 1 everywhere.
        for (int i = 0; i < n; ++i) near("network_values", out[b * n + i], y[i], tolerance);
        for (int i = 0; i < n; ++i) near("network_values_backward", grad[b * n + i], 1, tolerance);
    }
    softly::destroy_sorting_plan(plan);
}

template <typename T>
void reductions(double tolerance) {
    for (const int64_t n : {1, 3, 4, 17, 100}) {
        const int64_t rows = 2000;
        const auto x = numbers<T>(rows * n, 0.3, 1);
        std::vector<T> all(rows), sums(rows), ones(rows, T(1)), grad(rows * n);
        if (!hamacher<T>(x.data(), all.data(), rows, n, 1.0, false, 2)) ++failures;
        hamacher_backward<T>(x.data(), ones.data(), grad.data(), rows, n, 1.0, false, 2);
        logsumexp<T>(x.data(), sums.data(), rows, n, 2);
        for (int64_t r = 0; r < rows; ++r) {
            double product = 1, sum = 0;
            for (int64_t i = 0; i < n; ++i) product *= x[r * n + i], sum += std::exp(static_cast<double>(x[r * n + i]));
            near("hamacher", all[r], product, tolerance);
            near("hamacher_backward", grad[r * n], product / x[r * n], tolerance);
            near("logsumexp", sums[r], std::log(sum), tolerance);
        }
    }
}

}  // namespace

int main() {
    sorting<float>(8, cauchy, 1e-5);
    sorting<double>(8, cauchy, 1e-13);
    sorting<float>(6, logistic, 1e-5);
    sorting<double>(6, logistic, 1e-13);
    reductions<float>(1e-5);
    reductions<double>(1e-13);
    std::printf("on %s: %d comparisons, %d wrong", softly::name(softly::isa()), checks, failures);
    return failures != 0;
}
