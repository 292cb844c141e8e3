#include "scratch.h"

#include <cstdlib>

namespace softly {
namespace {

constexpr size_t line = 64;
constexpr size_t kept = size_t{16} << 20;  // larger requests are honoured, and given back at the next small one

struct Arena {
    void* memory = nullptr;
    size_t size = 0;
    ~Arena() { std::free(memory); }
};

thread_local Arena arena;

}  // namespace

void* scratch(size_t bytes) {
    if (bytes > arena.size || (arena.size > kept && bytes <= kept)) {
        std::free(arena.memory);
        arena.size = (bytes + line - 1) / line * line;
        arena.memory = std::aligned_alloc(line, arena.size);
        if (arena.memory == nullptr) arena.size = 0;
    }
    return arena.memory;
}

}  // namespace softly
