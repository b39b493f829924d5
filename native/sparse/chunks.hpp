// Loops over the chunks of a tensor's sections.
#pragma once
#include "common/parallel.hpp"
#include "sparse/topk.hpp"

namespace cutlayer {

// Encoders read a tensor twice. The first pass goes backwards: whoever made the tensor has left its end in the caches.
// It leaves the beginning there, where the second pass starts. Some chunks at a time are read forwards, as prefetching
// expects.
template <class F>
void backwards(int threads, size_t n, F f) {
  constexpr size_t some = 16;
  parallel(threads, n, [&](size_t i) {
    const size_t after = i / some * some;  // chunks behind these, which are done
    f(i - after + (n - after > some ? n - after - some : 0));
  });
}

// f(index, row, chunk) for every chunk of every row, in parallel.
template <class F>
void for_chunks(const Shape& shape, int threads, F f) {
  parallel(threads, shape.rows * shape.chunks(), [&](size_t i) { f(i, i / shape.chunks(), i % shape.chunks()); });
}

}  // namespace cutlayer
