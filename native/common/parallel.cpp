#include "common/parallel.hpp"

#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <thread>
#include <vector>
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <signal.h>
#define CUTLAYER_FORKS
#endif

namespace cutlayer {
namespace {

// Encoders call kernel after kernel, and waking a thread on a virtual processor may take longer than a kernel. So a
// worker waits for the next call actively: it spins, then yields, then sleeps.
constexpr std::chrono::microseconds kSpin{200}, kYield{1000}, kNap{50};

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

class ThreadPool {
 public:
  void run(size_t wanted, void (*work)(void*), void* data) {
    if (busy_.exchange(true)) return work(data);
    start(wanted);
    std::fegetenv(&rounding_);
    work_ = work;
    data_ = data;
    slots_ = int64_t(wanted);
    open_ = true;
    ++round_;
    if (asleep_ > 0) {
      avoid_this_processor();
      { const std::lock_guard<std::mutex> no_worker_between_check_and_wait(sleep_); }
      wake_.notify_all();
    }
    work(data);
    // A worker enters `inside_` before it checks `open_`, so none can start work after this without being counted.
    open_ = false;
    for (int i = 0; inside_ > 0; ++i) {
      if (i < 1000) pause();
      else if (i < 2000) std::this_thread::yield();
      else std::this_thread::sleep_for(kNap);  // the worker may need this processor
    }
    busy_ = false;
  }

 private:
  void start(size_t wanted) {
    if (workers_.size() >= wanted) return;
#ifdef CUTLAYER_FORKS
    // Workers block all signals: these are for the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
#endif
    try {
      while (workers_.size() < wanted) workers_.emplace_back([this] { work_loop(); });
    } catch (const std::exception&) {
      // No thread can be created: the existing ones do the work.
    }
#ifdef CUTLAYER_FORKS
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
#endif
#ifdef __linux__
    CPU_ZERO(&others_);  // new workers have no affinity yet
#endif
  }

  // Linux tends to wake a thread on the processor of its waker, where it waits until the waker is done. So workers
  // are kept off the processor of the caller.
  void avoid_this_processor() {
#ifdef __linux__
    const int here = sched_getcpu();
    cpu_set_t others;
    if (here < 0 || sched_getaffinity(0, sizeof others, &others)) return;
    if (CPU_COUNT(&others) > 1) CPU_CLR(here, &others);
    if (CPU_EQUAL(&others, &others_)) return;
    others_ = others;
    for (auto& worker : workers_) pthread_setaffinity_np(worker.native_handle(), sizeof others, &others);
#endif
  }

  [[noreturn]] void work_loop() {
    for (uint64_t seen = 0;;) {
      seen = wait_for_round(seen);
      ++inside_;
      if (open_ && --slots_ >= 0) {
        std::fesetenv(&rounding_);  // the same rounding mode as in the caller
        work_(data_);
      }
      --inside_;
    }
  }

  uint64_t wait_for_round(uint64_t seen) {
    const auto since = std::chrono::steady_clock::now();
    auto waited = since - since;
    while (round_ == seen) {
      if (waited < kSpin) {
        for (int i = 0; i < 64 && round_ == seen; ++i) pause();
      } else if (waited < kYield) {
        std::this_thread::yield();
      } else {
        std::unique_lock<std::mutex> lock(sleep_);
        ++asleep_;
        wake_.wait(lock, [&] { return round_ != seen; });
        --asleep_;
      }
      waited = std::chrono::steady_clock::now() - since;
    }
    return round_;
  }

  std::mutex sleep_;
  std::condition_variable wake_;
  std::atomic<uint64_t> round_{0};
  std::atomic<int64_t> slots_{0}, inside_{0}, asleep_{0};
  std::atomic<bool> busy_{false}, open_{false};
  std::vector<std::thread> workers_;
#ifdef __linux__
  cpu_set_t others_{};  // processors on which workers may run
#endif
  std::fenv_t rounding_{};
  void (*work_)(void*) = nullptr;
  void* data_ = nullptr;
};

// Never deleted: workers wait in it until the process ends. A forked child has no workers, and makes a new pool.
ThreadPool* pool = nullptr;

void make_pool() { pool = new ThreadPool; }

}  // namespace

void run_in_pool(size_t wanted, void (*work)(void*), void* data) {
  static std::once_flag once;
  std::call_once(once, [] {
    make_pool();
#ifdef CUTLAYER_FORKS
    pthread_atfork(nullptr, nullptr, make_pool);
#endif
  });
  pool->run(wanted, work, data);
}

}  // namespace cutlayer
