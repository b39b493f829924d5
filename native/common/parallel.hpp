// Work shared by the calling thread and helpers. Nothing is started at import; helpers stay for the next call.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>

namespace cutlayer {

// Calls work(data) in the calling thread and, if they come in time, in up to `helpers` others; returns when all that
// came are done. While another call has the helpers, the caller works alone.
void with_helpers(size_t helpers, void (*work)(void*), void* data);

// f(i) for each i of 0 .. n - 1. Whoever is free takes the next one, so that the calling thread works while
// the others are still waking up, and a disturbed one holds up nobody.
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
  with_helpers(
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
