// One kernel source, several instruction sets.
//
// CMake compiles native/<family>.cpp once per instruction set, with SOFTLY_ISA set to its name, and the source
// puts everything into namespace softly::SOFTLY_ISA. So the functions of the copies have different names:
//
//     // sums.h                                          // sums.cpp
//     #include "core/isa.h"                              #include "core/sums.h"
//     SOFTLY_DECLARE(                                    namespace softly::SOFTLY_ISA {
//         template <typename T>                          template <typename T>
//         void row_sums(const T* x, T* out,              void row_sums(const T* x, ...) { ... }
//                       int64_t rows, int64_t n,         template void row_sums(const float*, ...);
//                       int threads);                    template void row_sums(const double*, ...);
//     )                                                  }
//
//     // module.cpp
//     define(m, "row_sums_f32", SOFTLY_SELECT(row_sums<float>));
//     define(m, "row_sums_f64", SOFTLY_SELECT(row_sums<double>));
//
// Keep templates and inline functions of the standard library out of a family's source (std::vector, std::sort,
// std::function): their copies share one name, the linker keeps one of them, and it may be the copy with AVX2
// instructions, which then runs on a machine without. The C library (memcpy, malloc, exp) and compiler builtins
// are safe, and so is everything inside softly::SOFTLY_ISA.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#define SOFTLY_DECLARE(...)              \
    namespace softly {                   \
    namespace portable { __VA_ARGS__ }   \
    namespace avx2 { __VA_ARGS__ }       \
    }
// For the families that have a copy for AVX-512 as well. Of the others, namespace avx512 has the copy for AVX2.
#define SOFTLY_DECLARE_WIDE(...) \
    SOFTLY_DECLARE(__VA_ARGS__)  \
    namespace softly { namespace avx512 { __VA_ARGS__ } }
#define SOFTLY_SELECT(...)                                                  \
    (softly::isa() == softly::Isa::avx512 ? &softly::avx512::__VA_ARGS__    \
     : softly::isa() == softly::Isa::avx2 ? &softly::avx2::__VA_ARGS__      \
                                          : &softly::portable::__VA_ARGS__)
namespace softly {
namespace avx2 {}
namespace avx512 {
using namespace avx2;
}
}  // namespace softly
#else
#define SOFTLY_DECLARE(...) \
    namespace softly { namespace portable { __VA_ARGS__ } }
#define SOFTLY_DECLARE_WIDE SOFTLY_DECLARE
#define SOFTLY_SELECT(...) (&softly::portable::__VA_ARGS__)
#endif

// At the beginning of a wide kernel: leaves the call to AVX2 where wide vectors would be too empty to pay.
#if defined(__AVX512F__)
#define SOFTLY_NARROWER_IF(condition, function, ...) \
    if (condition) return avx2::function(__VA_ARGS__)
#else
#define SOFTLY_NARROWER_IF(...)
#endif

namespace softly {

enum class Isa { portable, avx2, avx512 };

// The widest instruction set that the machine has, or a narrower one where the environment says so: SOFTLY_ISA=avx2.
// Settled at the first call, which is the import of the module.
Isa isa();
const char* name(Isa isa);

}  // namespace softly
