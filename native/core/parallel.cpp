#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace softly {
namespace {

// To wake a thread that sleeps takes as long as a small kernel, and where there was one kernel the next is often near:
// so a thread looks for a while before it sleeps. Returns whether `ready` came true.
template <typename Ready>
bool look(Ready&& ready) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::microseconds(100);
    do {
        for (int i = 0; i < 16; ++i) {
            if (ready()) return true;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#else
            std::this_thread::yield();
#endif
        }
    } while (Clock::now() < end);
    return false;
}

// One call of run_parallel. It lives on its caller's stack, and the caller leaves only when no helper is inside.
struct Job {
    const int64_t count, grain;
    void (*const body)(void*, int64_t, int64_t);
    void* const context;
    const bool more;              // whether helpers look for further work behind it
    int places;                   // how many more helpers may join; changed, like `helpers`, under the pool's mutex
    std::atomic<int> helpers{0};  // how many are inside
    std::atomic<int64_t> next{0};
    std::condition_variable left{};

    void work() {
        for (int64_t begin; (begin = next.fetch_add(grain, std::memory_order_relaxed)) < count;) {
            body(context, begin, std::min(begin + grain, count));
        }
    }
};

class Pool {
  public:
    void run(Job& job) {
        const int wanted = job.places;
        {
            std::lock_guard lock(mutex_);
            grow(wanted);
            open_.push_back(&job);
            waiting_.fetch_add(1, std::memory_order_relaxed);
        }
        for (int i = 0; i < wanted; ++i) arrived_.notify_one();
        job.work();
        {
            std::lock_guard lock(mutex_);
            close(job);
        }
        look([&] { return job.helpers.load(std::memory_order_relaxed) == 0; });
        std::unique_lock lock(mutex_);  // which a helper on its way out still holds
        job.left.wait(lock, [&] { return job.helpers == 0; });
    }

  private:
    void grow(int wanted) {
        for (; workers_ < wanted; ++workers_) {
            try {
                std::thread([this] { serve(); }).detach();
            } catch (const std::system_error&) {
                return;  // the machine gives no more threads: the caller does the work that helpers don't
            }
        }
    }

    // Helpers need not join any more.
    void close(Job& job) {
        if (std::erase(open_, &job)) waiting_.fetch_sub(1, std::memory_order_relaxed);
    }

    [[noreturn]] void serve() {
        std::unique_lock lock(mutex_);
        for (;;) {
            while (open_.empty()) {
                arrived_.wait(lock);
                // Who comes too late for a short piece of work is just in time for the next, which often follows it.
                if (open_.empty()) rest(lock);
            }
            Job& job = *open_.front();
            ++job.helpers;
            if (--job.places == 0) close(job);
            lock.unlock();
            job.work();
            lock.lock();
            close(job);
            const bool more = job.more;
            if (--job.helpers == 0) job.left.notify_one();
            if (more && open_.empty()) rest(lock);
        }
    }

    // Looks for work without the mutex.
    void rest(std::unique_lock<std::mutex>& lock) {
        lock.unlock();
        look([&] { return waiting_.load(std::memory_order_relaxed) > 0; });
        lock.lock();
    }

    std::mutex mutex_;
    std::condition_variable arrived_;
    std::deque<Job*> open_;  // the jobs that helpers may still join
    std::atomic<int> waiting_{0};  // how many they are, to be read without the mutex
    int workers_ = 0;
};

// Never destroyed, since workers wait in it until the process ends. A child of fork has none of its parent's
// threads and perhaps a locked mutex, so it gets a new one.
std::atomic<Pool*> pool = [] {
#if !defined(_WIN32)  // which has no fork
    pthread_atfork(nullptr, nullptr, [] { pool.store(new Pool); });
#endif
    return new Pool;
}();

}  // namespace

void run_parallel(int64_t count, int64_t grain, int threads, void (*body)(void*, int64_t, int64_t), void* context,
                  bool more) {
    grain = std::max<int64_t>(grain, 1);
    const int64_t pieces = (count + grain - 1) / grain;
    const int helpers = static_cast<int>(std::min<int64_t>(threads, pieces)) - 1;
    Job job{count, grain, body, context, more, helpers};
    if (helpers <= 0) return job.work();
    pool.load()->run(job);
}

}  // namespace softly
