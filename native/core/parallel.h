// A parallel loop over torch's threads, or over a pool that persists between calls.
#pragma once

#include <cstdint>

namespace softly {

// Calls body(context, begin, end) on pieces of [0, count) of at most `grain`, on up to `threads` threads, of
// which the caller is one, and returns when all are done. Threads take the next piece as they become free.
//
// Several threads may call at once, a body may itself call, and a child of fork starts with a pool of its own.
// A body must not throw.
//
// Threads that are done look for more work for a while, since to wake them takes as long as a small kernel. That slows the
// caller's thread down where both share a core, so that the last loop of a kernel that takes milliseconds says that there
// is no `more`.
void run_parallel(int64_t count, int64_t grain, int threads, void (*body)(void*, int64_t, int64_t), void* context,
                  bool more);

// The same for a callable fn(begin, end). One thread sees the whole range at once:
//
//     parallel_for(rows, 64, threads, [&](int64_t begin, int64_t end) {
//         for (int64_t row = begin; row < end; ++row) { ... }
//     });
template <typename F>
inline void parallel_for(int64_t count, int64_t grain, int threads, F&& fn, bool more = true) {
    if (threads <= 1 || count <= grain) {
        if (count > 0) fn(int64_t{0}, count);
        return;
    }
    auto* callable = &fn;
    auto body = [](void* context, int64_t begin, int64_t end) {
        (*static_cast<decltype(callable)>(context))(begin, end);
    };
    run_parallel(count, grain, threads, body, const_cast<void*>(static_cast<const void*>(callable)), more);
}

}  // namespace softly
