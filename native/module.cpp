// The Python module softly._native: kernels by name, nothing else.
//
// Arguments are not checked here. A pointer arrives as an integer, and softly/native.py, the only caller, has
// checked device, dtype, contiguity and shapes before it took one.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <nanobind/nanobind.h>

#include "isa.h"
#include "isotonic.h"
#include "tnorms.h"

namespace nb = nanobind;

namespace softly {

Isa isa() {
    static const Isa settled = [] {
#if defined(__x86_64__)
        const char* wish = std::getenv("SOFTLY_ISA");
        const bool portable = wish != nullptr && std::strcmp(wish, "portable") == 0;
        if (!portable && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::avx2;
#endif
        return Isa::portable;
    }();
    return settled;
}

}  // namespace softly

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
    m.def("isa", [] { return softly::isa() == softly::Isa::avx2 ? "avx2" : "portable"; });

    define(m, "hamacher_f32", SOFTLY_SELECT(hamacher<float>));
    define(m, "hamacher_f64", SOFTLY_SELECT(hamacher<double>));
    define(m, "hamacher_backward_f32", SOFTLY_SELECT(hamacher_backward<float>));
    define(m, "hamacher_backward_f64", SOFTLY_SELECT(hamacher_backward<double>));

    define(m, "permutahedron_f32", SOFTLY_SELECT(permutahedron<float>));
    define(m, "permutahedron_f64", SOFTLY_SELECT(permutahedron<double>));
    define(m, "permutahedron_backward_f32", SOFTLY_SELECT(permutahedron_backward<float>));
    define(m, "permutahedron_backward_f64", SOFTLY_SELECT(permutahedron_backward<double>));
}
