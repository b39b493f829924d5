// Threads for the length of one call: nothing is started at import, nothing stays behind.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace cutlayer {

// f(i) for each i of 0 .. n - 1. Whoever is free takes the next one, so that the calling thread works while
// the others are still starting, and a disturbed one holds up nobody.
template <class F>
void parallel(int threads, size_t n, F f) {
  const size_t workers = std::min<size_t>(size_t(std::max(1, threads)), n);
  if (workers <= 1) {
    for (size_t i = 0; i < n; ++i) f(i);
    return;
  }
  std::atomic<size_t> next{0};
  std::vector<std::exception_ptr> failed(workers);
  auto work = [&](size_t worker) noexcept {
    try {
      for (size_t i = next++; i < n; i = next++) f(i);
    } catch (...) {
      failed[worker] = std::current_exception();
      next = n;
    }
  };
  std::vector<std::thread> helpers;
  helpers.reserve(workers - 1);
  try {
    for (size_t worker = 1; worker < workers; ++worker) helpers.emplace_back(work, worker);
  } catch (const std::system_error&) {
    // No thread to be had: those that are there do the work.
  }
  work(0);
  for (auto& helper : helpers) helper.join();
  for (auto& e : failed)
    if (e) std::rethrow_exception(e);
}

}  // namespace cutlayer
