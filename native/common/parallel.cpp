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

// An encoder calls kernel after kernel, and a virtual processor may take longer to wake than a kernel to run. So a helper
// stays awake for the next one: at first for itself, then giving way to whoever wants the processor; then it sleeps.
constexpr std::chrono::microseconds kAwake{200}, kGivingWay{1000}, kNap{50};

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

class Helpers {
 public:
  void run(size_t wanted, void (*work)(void*), void* data) {
    if (taken_.exchange(true)) return work(data);
    start(wanted);
    std::fegetenv(&rounding_);
    work_ = work;
    data_ = data;
    places_ = int64_t(wanted);
    open_ = true;
    ++round_;
    if (asleep_ > 0) {
      keep_away();
      { const std::lock_guard<std::mutex> none_between_looking_and_sleeping(sleep_); }
      wake_.notify_all();
    }
    work(data);
    // A helper is counted before it looks whether there is work: none can come in after this and go unseen.
    open_ = false;
    for (int i = 0; inside_ > 0; ++i) {
      if (i < 1000) pause();
      else if (i < 2000) std::this_thread::yield();
      else std::this_thread::sleep_for(kNap);  // it may need this very processor
    }
    taken_ = false;
  }

 private:
  void start(size_t wanted) {
    if (helpers_.size() >= wanted) return;
#ifdef CUTLAYER_FORKS
    // Signals are for the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
#endif
    try {
      while (helpers_.size() < wanted) helpers_.emplace_back([this] { help(); });
    } catch (const std::exception&) {
      // No thread to be had: those that are there do the work.
    }
#ifdef CUTLAYER_FORKS
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
#endif
#ifdef __linux__
    CPU_ZERO(&others_);  // the new ones have not been told
#endif
  }

  // Linux likes to wake a thread on the processor of the one that wakes it, where it then waits until that one is done.
  void keep_away() {
#ifdef __linux__
    const int here = sched_getcpu();
    cpu_set_t others;
    if (here < 0 || sched_getaffinity(0, sizeof others, &others)) return;
    if (CPU_COUNT(&others) > 1) CPU_CLR(here, &others);
    if (CPU_EQUAL(&others, &others_)) return;
    others_ = others;
    for (auto& helper : helpers_) pthread_setaffinity_np(helper.native_handle(), sizeof others, &others);
#endif
  }

  [[noreturn]] void help() {
    for (uint64_t seen = 0;;) {
      seen = next_round(seen);
      ++inside_;
      if (open_ && --places_ >= 0) {
        std::fesetenv(&rounding_);  // numbers come out as they would in the caller
        work_(data_);
      }
      --inside_;
    }
  }

  uint64_t next_round(uint64_t seen) {
    const auto since = std::chrono::steady_clock::now();
    auto waited = since - since;
    while (round_ == seen) {
      if (waited < kAwake) {
        for (int i = 0; i < 64 && round_ == seen; ++i) pause();
      } else if (waited < kGivingWay) {
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
  std::atomic<int64_t> places_{0}, inside_{0}, asleep_{0};
  std::atomic<bool> taken_{false}, open_{false};
  std::vector<std::thread> helpers_;
#ifdef __linux__
  cpu_set_t others_{};  // processors on which helpers may be
#endif
  std::fenv_t rounding_{};
  void (*work_)(void*) = nullptr;
  void* data_ = nullptr;
};

// Never deleted: helpers sleep in it until the process ends. A forked child has none of them, and begins anew.
Helpers* helpers = nullptr;

void begin() { helpers = new Helpers; }

}  // namespace

void with_helpers(size_t wanted, void (*work)(void*), void* data) {
  static std::once_flag once;
  std::call_once(once, [] {
    begin();
#ifdef CUTLAYER_FORKS
    pthread_atfork(nullptr, nullptr, begin);
#endif
  });
  helpers->run(wanted, work, data);
}

}  // namespace cutlayer
