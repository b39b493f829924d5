// Random subsets of k elements: randomized top-k and random-k (FORMAT.md, "Randomness").
#pragma once
#include "sparse/topk.hpp"

namespace cutlayer {

struct Sampling {
  double alpha;  // the total weight of the elements outside the top k
  bool coin;
  uint64_t seed;
};

// Sets bit i of `keep` for each sampled element i. `top` are the chunks of a top-k selection for randomized top-k, or
// null for random-k. `section` is the row's number in the tensor.
void sample_row(const float* x, const Shape& shape, const Chunk* top, const Sampling& sampling, uint32_t section,
                int threads, uint64_t* keep);

}  // namespace cutlayer
