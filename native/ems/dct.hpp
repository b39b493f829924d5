// The transform of `ems` (FORMAT.md, "Transform"): cosines of 8 x 8 blocks, channels rotated into each other.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cutlayer {

struct TransformShape {
  size_t samples, channels, height, width;
  size_t down() const { return (height + 7) / 8; }
  size_t across() const { return (width + 7) / 8; }
  size_t blocks() const { return down() * across(); }
};

// `matrix` has a row of factors for each channel of the result. Coefficients lie by sample, channel, frequency
// down, frequency across, block.
void dct_forward(const float* x, const TransformShape& shape, const float* matrix, float* y, int threads);
void dct_inverse(const float* y, const TransformShape& shape, const float* matrix, float lowest, float highest,
                       float* x, int threads);

}  // namespace cutlayer
