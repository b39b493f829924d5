// Encoding of payloads (FORMAT.md, "Codecs") of all codecs but `ems`. The caller has allocated the payload's size.
#pragma once
#include "sparse/sample.hpp"
#include "sparse/topk.hpp"

namespace cutlayer {

void ms_encode(const float* x, const Selection& top, unsigned bits, bool nearest, bool is_signed,
               Values kind, uint8_t* out, int threads);

// Which k elements of a section a sparse codec keeps: `sp`, `rt`, `rk`.
enum class Pick : int { topk = 0, randomized_topk = 1, random = 2 };

struct Sparse {
  Pick pick;
  Sampling sampling;
  bool keys;
  Values kind;
  float scale;
};
// Returns the largest magnitude, as bits. Above kMaxFinite the input is not finite, and the payload is invalid.
uint32_t sparse_encode(const float* x, Shape shape, const Sparse& how, uint8_t* out, int threads);

std::vector<Range> ranges(const float* x, size_t rows, size_t d, int threads);

// `own_range`: each section starts with its own lo and hi.
void qu_encode(const float* x, size_t d, const std::vector<Range>& ranges, unsigned bits, bool stochastic,
               uint64_t seed, bool own_range, uint8_t* out, int threads);

// k-means works on a grid of 2^16 levels between lo and hi. First, count the elements on each level.
void km_histogram(const float* x, size_t d, float lo, float hi, int64_t* bins);
// Then write the cluster of each element; `cluster` maps grid levels to clusters.
void km_encode(const float* x, size_t d, float lo, float hi, const uint8_t* cluster, unsigned bits,
               uint8_t* out);

}  // namespace cutlayer
