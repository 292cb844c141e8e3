// Memory that a thread works in and that it keeps between calls.
#pragma once

#include <cstddef>
#include <cstdlib>

namespace softly {

// At least `bytes` of this thread's own memory, aligned to a cache line, uninitialised, valid until the thread's
// next call. Null where there is no memory. A body of parallel_for may use it; who calls parallel_for must not hold
// it meanwhile, since the caller's thread runs bodies too.
void* scratch(size_t bytes);

// Whether all threads of a kernel had the memory that they needed, which is what it returns.
class Enough {
  public:
    void fail() { __atomic_store_n(&all_, false, __ATOMIC_RELAXED); }
    operator bool() const { return all_; }  // once the threads are done

  private:
    bool all_ = true;
};

// Memory that is given back at the end of a block; null where there is none.
template <typename T>
class Buffer {
  public:
    explicit Buffer(size_t count) : memory_(static_cast<T*>(std::malloc(count * sizeof(T) + 1))) {}
    ~Buffer() { std::free(memory_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    T* get() const { return memory_; }
    operator bool() const { return memory_ != nullptr; }

  private:
    T* memory_;
};

}  // namespace softly
