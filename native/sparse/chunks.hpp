// Loops over the chunks of a tensor's sections.
#pragma once
#include "common/parallel.hpp"
#include "sparse/topk.hpp"

namespace cutlayer {

// f(index, row, chunk) for every chunk of every row, in parallel.
template <class F>
void for_chunks(const Shape& shape, int threads, F f) {
  parallel(threads, shape.rows * shape.chunks(), [&](size_t i) { f(i, i / shape.chunks(), i % shape.chunks()); });
}

}  // namespace cutlayer
