// The transform of `ems` (FORMAT.md, "Transform"): DCT of 8 x 8 blocks, and rotation of channels (PCA).
#pragma once
#include <cstddef>
#include <cstdint>

namespace cutlayer {

struct DctShape {
  size_t samples, channels, height, width;
  size_t down() const { return (height + 7) / 8; }
  size_t across() const { return (width + 7) / 8; }
  size_t blocks() const { return down() * across(); }
};

// `matrix` is channels x channels; row k makes channel k of the result. Coefficients are ordered by sample, channel,
// vertical frequency, horizontal frequency, block.
void dct_forward(const float* x, const DctShape& shape, const float* matrix, float* y, int threads);
void dct_inverse(const float* y, const DctShape& shape, const float* matrix, float lowest, float highest, float* x,
                 int threads);

}  // namespace cutlayer
