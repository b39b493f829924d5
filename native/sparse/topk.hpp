// Which k elements of each section have the largest magnitudes, exactly, in one read of the data.
#pragma once
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "sparse/kernels.hpp"

namespace cutlayer {

constexpr size_t kChunk = 1 << 16;  // elements handed out at a time: a quarter of a megabyte

struct Chunk {
  Cut cut;
  uint64_t before;  // values of the section that lie before this chunk
  uint64_t count;   // values of this chunk
};

// Encoders read the data twice. If another thread writes to them in between, counts no longer fit.
struct Changed : std::runtime_error {
  Changed() : std::runtime_error("changed") {}
};

inline uint64_t count_bits(const uint64_t* bits, size_t n) {
  uint64_t count = 0;
  for (size_t w = 0; w < (n + kBlock - 1) / kBlock; ++w) count += uint64_t(__builtin_popcountll(bits[w]));
  return count;
}

struct Shape {
  size_t rows, d;
  uint64_t k;
  size_t chunks() const { return (d + kChunk - 1) / kChunk; }
  size_t length(size_t chunk) const { return std::min(kChunk, d - chunk * kChunk); }
};

struct Found {
  uint32_t t;  // the smallest top magnitude, as bits
  uint32_t max_bits;
  bool negative;
};

struct Selection {
  Shape shape;
  std::vector<Chunk> chunks;  // shape.rows * shape.chunks()
  std::vector<float> topmin;  // the smallest top magnitude, one a row
  uint32_t max_bits = 0;
  bool negative = false;
};

// k of 1 .. d; more than kMaxFinite in max_bits means that the data are not finite and the rest is void.
Found select_row(const float* x, const Shape& shape, int threads, Chunk* chunks);
Selection select_top(const float* x, Shape shape, int threads);

}  // namespace cutlayer
