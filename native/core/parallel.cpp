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
#include <dlfcn.h>
#include <pthread.h>
#endif

namespace softly {
namespace {

using Clock = std::chrono::steady_clock;

// To wake a thread that sleeps takes as long as a small kernel, and where there was one kernel the next is often near:
// so a thread looks for a while before it sleeps. Returns whether `ready` came true.
template <typename Ready>
bool look(Ready&& ready) {
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

// OpenMP's threads, where torch has brought them: they look for work for milliseconds after each of its loops, and those
// of a pool would have to share the cores with them.
//
// All of them have to come to the end of a loop, also those that find nothing left to do. Where others keep the cores
// busy that takes much longer than the work itself, and the pool, which waits for nobody who is late, is taken for a while.
class Team {
  public:
    // Whether it has done the job.
    bool run(Job& job, int threads) {
        const Loop loop = loop_.load(std::memory_order_relaxed);
        const auto begin = Clock::now();
        if (!loop || begin.time_since_epoch().count() < back_.load(std::memory_order_relaxed)) return false;
        Part part{job, std::this_thread::get_id(), begin};
        loop([](void* part) { static_cast<Part*>(part)->work(); }, &part, static_cast<unsigned>(threads), 0);
        const auto end = Clock::now();
        if (end - part.done > part.done - begin + std::chrono::milliseconds(1)) {
            back_.store((end + std::chrono::seconds(1)).time_since_epoch().count(), std::memory_order_relaxed);
        }
        return true;
    }

    // For a child of fork, which has none of the threads.
    void leave() { loop_.store(nullptr); }

  private:
    using Loop = void (*)(void (*)(void*), void*, unsigned, unsigned);

    struct Part {
        Job& job;
        const std::thread::id caller;
        Clock::time_point done;  // when the caller had nothing more to do

        void work() {
            job.work();
            if (std::this_thread::get_id() == caller) done = Clock::now();
        }
    };

    static Loop found() {
#if defined(_WIN32)
        return nullptr;
#else
        return reinterpret_cast<Loop>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
#endif
    }

    std::atomic<Loop> loop_{found()};
    std::atomic<Clock::rep> back_{0};
};

Team team;

// Never destroyed, since workers wait in it until the process ends. A child of fork has none of its parent's
// threads and perhaps a locked mutex, so it gets a new one.
std::atomic<Pool*> pool = [] {
#if !defined(_WIN32)  // which has no fork
    pthread_atfork(nullptr, nullptr, [] {
        pool.store(new Pool);
        team.leave();
    });
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
    if (!team.run(job, threads)) pool.load()->run(job);
}

}  // namespace softly
