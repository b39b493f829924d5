// DCT of 8 x 8 blocks and rotation of channels, forward and inverse.
#include "ems/dct.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/parallel.hpp"
#include "sparse/kernels.hpp"

namespace cutlayer {
namespace {

struct DctKernels {
  void (*rotate)(const float* in, const float* matrix, size_t channels, size_t n, float* out);
  void (*dct8)(float* t, size_t n, size_t stride);
  void (*idct8)(float* t, size_t n, size_t stride);
};

constexpr float over(int n) { return float(n) / 65536.0f; }
constexpr float kCosines[8][4] = {
    {over(23170), over(23170), over(23170), over(23170)},   {over(32138), over(27246), over(18205), over(6393)},
    {over(30274), over(12540), over(-12540), over(-30274)}, {over(27246), over(-6393), over(-32138), over(-18205)},
    {over(23170), over(-23170), over(-23170), over(23170)}, {over(18205), over(-32138), over(6393), over(27246)},
    {over(12540), over(-30274), over(30274), over(-12540)}, {over(6393), over(-18205), over(27246), over(-32138)}};

namespace generic {
#include "ems/simd/dct.inc"
}  // namespace generic

#ifdef CUTLAYER_X86
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
namespace avx2 {
#include "ems/simd/dct.inc"
}  // namespace avx2
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

// With AVX-512 the AVX2 loops run, too.
const DctKernels& dct_kernels() {
#ifdef CUTLAYER_X86
  if (&kernels() == &avx512_kernels || &kernels() == &avx2_kernels) return avx2::table;
#endif
  return generic::table;
}

// Reorders a plane by row in the block, column in the block, block. Border elements are repeated to fill blocks.
void to_blocks(const float* x, const DctShape& shape, float* t) {
  const size_t across = shape.across(), n = shape.blocks();
  for (size_t row = 0; row < 8 * shape.down(); ++row) {
    const float* from = x + std::min(row, shape.height - 1) * shape.width;
    float* to = t + row % 8 * 8 * n + row / 8 * across;
    for (size_t b = 0; b < across; ++b)
      for (size_t j = 0; j < 8; ++j) to[j * n + b] = from[std::min(8 * b + j, shape.width - 1)];
  }
}

// Back from blocks to a plane; clamps the elements.
void from_blocks(const float* t, const DctShape& shape, float lowest, float highest, float* x) {
  const size_t n = shape.blocks();
  for (size_t row = 0; row < shape.height; ++row) {
    const float* from = t + row % 8 * 8 * n + row / 8 * shape.across();
    float* to = x + row * shape.width;
    for (size_t b = 0; 8 * b < shape.width; ++b)
      for (size_t j = 0; j < std::min<size_t>(8, shape.width - 8 * b); ++j)
        // -0 becomes 0.
        to[8 * b + j] = std::min(std::max(from[j * n + b], lowest), highest) + 0.0f;
  }
}

}  // namespace

void dct_forward(const float* x, const DctShape& shape, const float* matrix, float* y, int threads) {
  const auto& kernel = dct_kernels();
  const size_t plane = shape.height * shape.width, n = shape.blocks(), coefficients = shape.channels * 64 * n;
  parallel(threads, shape.samples, [&](size_t sample) {
    std::vector<float> buffer(coefficients);
    for (size_t c = 0; c < shape.channels; ++c) {
      float* t = buffer.data() + c * 64 * n;
      to_blocks(x + (sample * shape.channels + c) * plane, shape, t);
      for (size_t i = 0; i < 8; ++i) kernel.dct8(t + i * 8 * n, n, n);
      kernel.dct8(t, 8 * n, 8 * n);
    }
    kernel.rotate(buffer.data(), matrix, shape.channels, 64 * n, y + sample * coefficients);
  });
}

void dct_inverse(const float* y, const DctShape& shape, const float* matrix, float lowest, float highest, float* x,
                 int threads) {
  const auto& kernel = dct_kernels();
  const size_t plane = shape.height * shape.width, n = shape.blocks(), coefficients = shape.channels * 64 * n;
  parallel(threads, shape.samples, [&](size_t sample) {
    std::vector<float> buffer(coefficients);
    kernel.rotate(y + sample * coefficients, matrix, shape.channels, 64 * n, buffer.data());
    for (size_t c = 0; c < shape.channels; ++c) {
      float* t = buffer.data() + c * 64 * n;
      kernel.idct8(t, 8 * n, 8 * n);
      for (size_t i = 0; i < 8; ++i) kernel.idct8(t + i * 8 * n, n, n);
      from_blocks(t, shape, lowest, highest, x + (sample * shape.channels + c) * plane);
    }
  });
}

}  // namespace cutlayer
