// Payloads (FORMAT.md, "Codecs") written into memory that the caller has sized by the codec's formula.
#pragma once
#include "sparse/sample.hpp"
#include "sparse/topk.hpp"

namespace cutlayer {

void ms_encode(const float* x, const Selection& top, unsigned bits, bool nearest, bool is_signed,
               Values kind, uint8_t* out, int threads);

// Which k elements of a section a sparse codec keeps.
enum class Pick : int { top = 0, randomized = 1, any = 2 };

struct Sparse {
  Pick pick;
  Chance chance;
  bool keys;
  Values kind;
  float scale;
};
// Gives the largest magnitude, as bits; above kMaxFinite the input is not finite and the payload is void.
uint32_t sparse_encode(const float* x, Shape shape, const Sparse& how, uint8_t* out, int threads);

std::vector<Range> ranges(const float* x, size_t rows, size_t d, int threads);

// `own_range`: each section starts with its lo and hi.
void qu_encode(const float* x, size_t d, const std::vector<Range>& ranges, unsigned bits, bool stochastic,
               uint64_t seed, bool own_range, uint8_t* out, int threads);

// k-means works on a grid of 2^16 levels between lo and hi: first how many elements lie on each ...
void km_histogram(const float* x, size_t d, float lo, float hi, int64_t* bins);
// ... then each level's cluster.
void km_encode(const float* x, size_t d, float lo, float hi, const uint8_t* cluster, unsigned bits,
               uint8_t* out);

}  // namespace cutlayer
