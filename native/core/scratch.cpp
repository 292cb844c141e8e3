#include "core/scratch.h"

#include <cstdlib>

#if defined(_WIN32)
#include <malloc.h>
#else
#include <sys/mman.h>
#endif

namespace softly {
namespace {

constexpr size_t line = 64;
// Beyond so many bytes, what is read here and there is slow in small pages: their addresses don't fit into the TLB.
constexpr size_t page = size_t{2} << 20, many = size_t{192} << 10;
constexpr size_t kept = size_t{16} << 20;  // larger requests are honoured, and given back at the next small one

#if defined(_WIN32)  // which has the C library's function by another name
void* allocate(size_t unit, size_t size) { return _aligned_malloc(size, unit); }
void release(void* memory) { _aligned_free(memory); }
#else
void* allocate(size_t unit, size_t size) { return std::aligned_alloc(unit, size); }
void release(void* memory) { std::free(memory); }
#endif

struct Arena {
    void* memory = nullptr;
    size_t size = 0;
    ~Arena() { release(memory); }
};

thread_local Arena arena;

}  // namespace

void* scratch(size_t bytes) {
    if (bytes > arena.size || (arena.size > kept && bytes <= kept)) {
        release(arena.memory);
        const size_t unit = bytes > many ? page : line;
        arena.size = (bytes + unit - 1) / unit * unit;
        arena.memory = allocate(unit, arena.size);
        if (arena.memory == nullptr) arena.size = 0;
#if defined(MADV_HUGEPAGE)  // Linux
        if (unit == page && arena.size) madvise(arena.memory, arena.size, MADV_HUGEPAGE);
#endif
    }
    return arena.memory;
}

}  // namespace softly
