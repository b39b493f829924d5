// Loops over the chunks of a tensor's sections.
#pragma once
#include "common/parallel.hpp"
#include "sparse/topk.hpp"

namespace cutlayer {

// f(index, row, chunk) for every chunk of every row, in parallel, the last one first: an earlier pass over the tensor has
// left its end in the caches.
template <class F>
void for_chunks(const Shape& shape, int threads, F f) {
  const size_t chunks = shape.chunks(), all = shape.rows * chunks;
  parallel(threads, all, [&](size_t j) {
    const size_t i = all - 1 - j;
    f(i, i / chunks, i % chunks);
  });
}

}  // namespace cutlayer
