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
  size_t sample() const { return channels * height * width; }
  size_t coefficients() const { return channels * 64 * blocks(); }
};

// `matrix` is channels x channels; row k makes channel k of the result. Coefficients are ordered by sample, channel,
// vertical frequency, horizontal frequency, block.
void dct_forward(const float* x, const DctShape& shape, const float* matrix, float* y, int threads);
void dct_inverse(const float* y, const DctShape& shape, const float* matrix, float lowest, float highest, float* x,
                 int threads);
// One sample; `buffer` has room for its coefficients.
void dct_inverse_sample(const float* y, const DctShape& shape, const float* matrix, float lowest, float highest, float* x,
                        float* buffer);
// y becomes x - y; and magnitudes x get the signs of y.
void subtract_from(const float* x, size_t n, float* y);
void copy_signs(const float* y, size_t n, float* x);
// Adds the products of rows of n integers, all with all, to the lower triangle of out. `count` is a multiple of 4, n of 16.
void add_products(const double* rows, size_t count, size_t n, double* out);

}  // namespace cutlayer
