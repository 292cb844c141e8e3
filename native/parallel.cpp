#include "parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include <pthread.h>

namespace softly {
namespace {

// One call of run_parallel. It lives on its caller's stack, and the caller leaves only when no helper is inside.
struct Job {
    const int64_t count, grain;
    void (*const body)(void*, int64_t, int64_t);
    void* const context;
    int places;       // how many more helpers may join; this and `helpers` are guarded by the pool's mutex
    int helpers = 0;  // how many are inside
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
        }
        for (int i = 0; i < wanted; ++i) arrived_.notify_one();
        job.work();
        std::unique_lock lock(mutex_);
        std::erase(open_, &job);
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

    [[noreturn]] void serve() {
        std::unique_lock lock(mutex_);
        for (;;) {
            arrived_.wait(lock, [&] { return !open_.empty(); });
            Job& job = *open_.front();
            ++job.helpers;
            if (--job.places == 0) open_.pop_front();
            lock.unlock();
            job.work();
            lock.lock();
            std::erase(open_, &job);  // nothing is left to take: nobody needs to join any more
            if (--job.helpers == 0) job.left.notify_one();
        }
    }

    std::mutex mutex_;
    std::condition_variable arrived_;
    std::deque<Job*> open_;  // the jobs that helpers may still join
    int workers_ = 0;
};

// Never destroyed, since workers wait in it until the process ends. A child of fork has none of its parent's
// threads and perhaps a locked mutex, so it gets a new one.
std::atomic<Pool*> pool = [] {
    pthread_atfork(nullptr, nullptr, [] { pool.store(new Pool); });
    return new Pool;
}();

}  // namespace

void run_parallel(int64_t count, int64_t grain, int threads, void (*body)(void*, int64_t, int64_t), void* context) {
    grain = std::max<int64_t>(grain, 1);
    const int64_t pieces = (count + grain - 1) / grain;
    const int helpers = static_cast<int>(std::min<int64_t>(threads, pieces)) - 1;
    Job job{count, grain, body, context, helpers};
    if (helpers <= 0) return job.work();
    pool.load()->run(job);
}

}  // namespace softly
