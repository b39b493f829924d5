// Random subsets of k elements: randomized top-k and random-k (FORMAT.md, "Randomness").
#pragma once
#include "sparse/topk.hpp"

namespace cutlayer {

struct Sampling {
  double alpha;  // the total weight of the elements outside the top k
  bool coin;
  uint64_t seed;
};

// The random sets of a section, one bit an element in order, with a spare word behind each; and where in them each
// chunk begins and ends.
struct Sample {
  std::vector<uint64_t> top, others;
  std::vector<Sampled> chunks;
};

// Randomized top-k: which of the top elements are kept, and which of the others. Random-k: all elements are others.
// `section` is the row's number in the tensor.
Sample sample_top(const Shape& shape, const Sampling& sampling, uint32_t section);
Sample sample_all(const Shape& shape, const Sampling& sampling, uint32_t section);

// How many bits of a set from `first` to before `end` are 1.
uint64_t count_between(const uint64_t* set, uint64_t first, uint64_t end);

}  // namespace cutlayer
