#include "estimators/fisher_step.h"

#include <cmath>

#include "core/scratch.h"

namespace softly::SOFTLY_ISA {

template <typename T>
int fisher_step(const T* y, const T* g, T* ends, double* lambda, bool automatic, int64_t batch, int64_t m) {
    auto* factor = static_cast<double*>(scratch((m * m + m) * sizeof(double)));
    if (factor == nullptr) return 2;
    double* row = factor + m * m;
    for (int64_t k = 0; k < m * m; ++k) factor[k] = 0;
    for (int64_t b = 0; b < batch; ++b) {
        for (int64_t i = 0; i < m; ++i) row[i] = g[b * m + i];
        for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j <= i; ++j) factor[i * m + j] += row[i] * row[j];
        }
    }
    double trace = 0;
    for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j <= i; ++j) factor[i * m + j] /= batch;
        trace += factor[i * m + i];
    }
    if (!(trace < HUGE_VAL)) return 2;
    if (automatic) *lambda = trace == 0 ? 1 : 0.1 * trace / m;
    double least = HUGE_VAL, most = 0;
    for (int64_t i = 0; i < m; ++i) {
        double* at = factor + i * m;
        at[i] += *lambda;
        for (int64_t j = 0; j <= i; ++j) {
            double rest = at[j];
            const double* other = factor + j * m;
            for (int64_t k = 0; k < j; ++k) rest -= at[k] * other[k];
            if (j < i) {
                at[j] = rest * other[j];  // the diagonal has inverses
            } else if (rest > 0) {
                least = rest < least ? rest : least;
                most = rest > most ? rest : most;
                at[i] = 1 / std::sqrt(rest);
            } else {
                return 1;
            }
        }
    }
    if (!(least > m * 0x1p-52 * most)) return 1;
    for (int64_t b = 0; b < batch; ++b) {
        for (int64_t i = 0; i < m; ++i) {
            double rest = g[b * m + i];
            for (int64_t k = 0; k < i; ++k) rest -= factor[i * m + k] * row[k];
            row[i] = rest * factor[i * m + i];
        }
        for (int64_t i = m - 1; i >= 0; --i) {
            double rest = row[i];
            for (int64_t k = i + 1; k < m; ++k) rest -= factor[k * m + i] * row[k];
            row[i] = rest * factor[i * m + i];
        }
        for (int64_t i = 0; i < m; ++i) ends[b * m + i] = static_cast<T>(y[b * m + i] - row[i]);
    }
    return 0;
}

template int fisher_step(const float*, const float*, float*, double*, bool, int64_t, int64_t);
template int fisher_step(const double*, const double*, double*, double*, bool, int64_t, int64_t);

}  // namespace softly::SOFTLY_ISA
