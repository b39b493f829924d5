// A thread pool for loops. No thread is started at import; workers are started by the first call and stay.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>

namespace cutlayer {

// Calls work(data) in the calling thread and in up to `workers` others, if they wake in time. Returns when all are
// done. While another call uses the pool, the caller works alone.
void run_in_pool(size_t workers, void (*work)(void*), void* data);

// f(i) for i = 0 .. n - 1. Each free thread takes the next i (dynamic scheduling): the caller works while the others
// wake up, and a delayed thread does not hold up the rest.
template <class F>
void parallel(int threads, size_t n, F f) {
  const size_t workers = std::min<size_t>(size_t(std::max(1, threads)), n);
  if (workers <= 1) {
    for (size_t i = 0; i < n; ++i) f(i);
    return;
  }
  struct Shared {
    F& f;
    size_t n;
    std::atomic<size_t> next{0};
    std::mutex failing{};
    std::exception_ptr failed{};
  } shared{f, n};
  run_in_pool(
      workers - 1,
      [](void* data) {
        Shared& s = *static_cast<Shared*>(data);
        try {
          for (size_t i = s.next++; i < s.n; i = s.next++) s.f(i);
        } catch (...) {
          s.next = s.n;
          const std::lock_guard<std::mutex> one(s.failing);
          if (!s.failed) s.failed = std::current_exception();
        }
      },
      &shared);
  if (shared.failed) std::rethrow_exception(shared.failed);
}

}  // namespace cutlayer
