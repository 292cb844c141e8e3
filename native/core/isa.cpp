#include "core/isa.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace softly {
namespace {

// What the processor has, and the operating system keeps for its threads. Asked by hand, since the compiler's own
// question, __builtin_cpu_supports, has no answer in the libraries of Windows.
Isa widest() {
#if defined(__x86_64__)
    unsigned a, b, c, d, low, high;
    const auto has = [](unsigned bits, std::initializer_list<int> wanted) {
        return std::all_of(wanted.begin(), wanted.end(), [&](int bit) { return (bits >> bit & 1) != 0; });
    };
    constexpr int fma = 12, saved = 27, avx2 = 5, avx512f = 16, avx512dq = 17, avx512bw = 30, avx512vl = 31;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, {fma, saved})) return Isa::portable;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if (!has(low, {1, 2}) || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has(b, {avx2})) return Isa::portable;
    return has(low, {5, 6, 7}) && has(b, {avx512f, avx512dq, avx512bw, avx512vl}) ? Isa::avx512 : Isa::avx2;
#else
    return Isa::portable;
#endif
}

}  // namespace

const char* name(Isa isa) {
    constexpr const char* names[] = {"portable", "avx2", "avx512"};
    return names[static_cast<int>(isa)];
}

Isa isa() {
    static const Isa settled = [] {
        const char* wish = std::getenv("SOFTLY_ISA");
        for (const Isa narrower : {Isa::portable, Isa::avx2}) {
            if (wish != nullptr && std::strcmp(wish, name(narrower)) == 0) return std::min(narrower, widest());
        }
        return widest();
    }();
    return settled;
}

}  // namespace softly
