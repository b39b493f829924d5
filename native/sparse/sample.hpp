// Random sets of k elements: randomized top-k and random-k (FORMAT.md, "Randomness").
#pragma once
#include "sparse/topk.hpp"

namespace cutlayer {

struct Chance {
  double alpha;  // the total weight of the elements outside the top k
  bool coin;
  uint64_t seed;
};

// Bit i of `keep` becomes 1 where element i is chosen. `top` are the chunks of a selection for randomized
// top-k, or null for random-k. `section` is the row's number in the tensor.
void choose_row(const float* x, const Shape& shape, const Chunk* top, const Chance& chance, uint32_t section,
                int threads, uint64_t* keep);

}  // namespace cutlayer
