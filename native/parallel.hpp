// Threads for the length of one call: nothing is started at import, nothing stays behind.
#pragma once
#include <algorithm>
#include <cstddef>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace cutlayer {

// f(part, begin, end) on contiguous shares of 0 .. n - 1, the calling thread included.
template <class F>
void parallel(int threads, size_t n, F f) {
  const size_t parts = std::max<size_t>(1, std::min<size_t>(size_t(std::max(1, threads)), n));
  if (parts == 1) {
    f(size_t(0), size_t(0), n);
    return;
  }
  std::vector<std::exception_ptr> failed(parts);
  std::vector<std::thread> helpers;
  helpers.reserve(parts - 1);
  auto run = [&](size_t part) noexcept {
    try {
      f(part, n * part / parts, n * (part + 1) / parts);
    } catch (...) {
      failed[part] = std::current_exception();
    }
  };
  size_t started = 1;
  try {
    for (; started < parts; ++started) helpers.emplace_back(run, started);
  } catch (const std::system_error&) {
    // No thread to be had: this one does the rest.
  }
  run(0);
  for (size_t part = started; part < parts; ++part) run(part);
  for (auto& helper : helpers) helper.join();
  for (auto& e : failed)
    if (e) std::rethrow_exception(e);
}

}  // namespace cutlayer
