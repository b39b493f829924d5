// Top-k selection: the k largest magnitudes of each section, exactly, usually in one read of the data.
#pragma once
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "sparse/kernels.hpp"

namespace cutlayer {

constexpr size_t kChunk = 1 << 16;  // elements that a thread takes at a time: 256 KiB

struct Chunk {
  Threshold threshold;
  uint64_t before;  // top values of the section before this chunk
  uint64_t count;   // top values in this chunk
};

// Encoders read the data twice. Thrown if another thread has changed them in between, so that counts do not fit.
struct DataChanged : std::runtime_error {
  DataChanged() : std::runtime_error("changed") {}
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

struct RowTop {
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

// 1 <= k <= d. If max_bits is above kMaxFinite, the data are not finite and the rest of the result is invalid.
RowTop select_row(const float* x, const Shape& shape, int threads, Chunk* chunks);
Selection select_top(const float* x, Shape shape, int threads);

}  // namespace cutlayer
