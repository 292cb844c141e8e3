// Memory that a thread works in and that it keeps between calls.
#pragma once

#include <cstddef>

namespace softly {

// At least `bytes` of this thread's own memory, aligned to a cache line, uninitialised, valid until the thread's
// next call. Null where there is no memory. A body of parallel_for may use it; who calls parallel_for must not hold
// it meanwhile, since the caller's thread runs bodies too.
void* scratch(size_t bytes);

}  // namespace softly
