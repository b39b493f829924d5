// DCT of 8 x 8 blocks and rotation of channels, forward and inverse.
#include "ems/dct.hpp"

#include <algorithm>
#include <cstring>

#include "common/float16.hpp"
#include "common/parallel.hpp"
#include "ems/section.hpp"
#include "sparse/kernels.hpp"

#ifdef CUTLAYER_X86
#include <immintrin.h>
#endif

namespace cutlayer {
namespace {

struct DctKernels {
  void (*rotate)(const float* in, const float* matrix, size_t channels, size_t n, bool sparse, float* out);
  void (*dct8)(float* t, size_t n, size_t stride);
  void (*idct8)(float* t, size_t n, size_t stride);
  // Eight rows of eight floats become columns.
  void (*transpose8)(const float* const* from, float* const* to);
  void (*clamp)(float* x, size_t n, float lowest, float highest);
  void (*subtract)(const float* x, size_t n, float* y);
  void (*copy_signs)(const float* y, size_t n, float* x);
  void (*add_dots)(const double* a, const double* b, size_t stride, size_t n, double* out, size_t out_stride);
};

constexpr float over(int n) { return float(n) / 65536.0f; }
constexpr float kCosines[8][4] = {
    {over(23170), over(23170), over(23170), over(23170)},   {over(32138), over(27246), over(18205), over(6393)},
    {over(30274), over(12540), over(-12540), over(-30274)}, {over(27246), over(-6393), over(-32138), over(-18205)},
    {over(23170), over(-23170), over(-23170), over(23170)}, {over(18205), over(-32138), over(6393), over(27246)},
    {over(12540), over(-30274), over(30274), over(-12540)}, {over(6393), over(-18205), over(27246), over(-32138)}};

namespace generic {
constexpr size_t kWidth = 4, kMany = 2;
static void transpose8(const float* const* from, float* const* to) {
  for (size_t i = 0; i < 8; ++i)
    for (size_t j = 0; j < 8; ++j) to[j][i] = from[i][j];
}
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
constexpr size_t kWidth = 8, kMany = 2;
static void transpose8(const float* const* from, float* const* to) {
  __m256 a[8], b[8];
  for (size_t i = 0; i < 8; ++i) a[i] = _mm256_loadu_ps(from[i]);
  for (size_t i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
  }
  for (size_t i = 0; i < 8; i += 4)
    for (size_t j = 0; j < 2; ++j) {
      a[i + 2 * j] = _mm256_shuffle_ps(b[i + j], b[i + j + 2], 0x44);
      a[i + 2 * j + 1] = _mm256_shuffle_ps(b[i + j], b[i + j + 2], 0xee);
    }
  for (size_t j = 0; j < 4; ++j) {
    _mm256_storeu_ps(to[j], _mm256_permute2f128_ps(a[j], a[j + 4], 0x20));
    _mm256_storeu_ps(to[j + 4], _mm256_permute2f128_ps(a[j], a[j + 4], 0x31));
  }
}
#include "ems/simd/dct.inc"
}  // namespace avx2
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx2,avx512f,avx512bw,avx512dq,avx512vl")
#endif
namespace avx512 {
constexpr size_t kWidth = 16, kMany = 4;
static void transpose8(const float* const* from, float* const* to) { avx2::transpose8(from, to); }
#include "ems/simd/dct.inc"
}  // namespace avx512
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

const DctKernels& dct_kernels() {
#ifdef CUTLAYER_X86
  if (&kernels() == &avx512_kernels) return avx512::table;
  if (&kernels() == &avx2_kernels) return avx2::table;
#endif
  return generic::table;
}

// Whether planes are whole blocks, and these can be transposed eight at a time.
bool transposes(const DctShape& shape) {
  return shape.width % 8 == 0 && shape.height % 8 == 0 && shape.blocks() % 8 == 0;
}

// Where eight blocks from block b on have the row of the blocks, in a plane; and their columns among all blocks.
template <class T>
void rows_of(T* plane, const DctShape& shape, size_t row, size_t b, T** rows) {
  for (size_t i = 0; i < 8; ++i)
    rows[i] = plane + ((b + i) / shape.across() * 8 + row) * shape.width + (b + i) % shape.across() * 8;
}
template <class T>
void columns_of(T* t, size_t n, size_t row, size_t b, T** columns) {
  for (size_t j = 0; j < 8; ++j) columns[j] = t + (row * 8 + j) * n + b;
}

// Reorders a plane by row in the block, column in the block, block. Border elements are repeated to fill blocks.
void to_blocks(const float* x, const DctShape& shape, const DctKernels& kernel, float* t) {
  const size_t across = shape.across(), n = shape.blocks();
  if (transposes(shape)) {
    const float* from[8];
    float* to[8];
    for (size_t b = 0; b < n; b += 8)
      for (size_t row = 0; row < 8; ++row) {
        rows_of(x, shape, row, b, from);
        columns_of(t, n, row, b, to);
        kernel.transpose8(from, to);
      }
    return;
  }
  for (size_t row = 0; row < 8 * shape.down(); ++row) {
    const float* from = x + std::min(row, shape.height - 1) * shape.width;
    float* to = t + row % 8 * 8 * n + row / 8 * across;
    for (size_t b = 0; b < across; ++b)
      for (size_t j = 0; j < 8; ++j) to[j * n + b] = from[std::min(8 * b + j, shape.width - 1)];
  }
}

// Back from blocks to a plane.
void from_blocks(const float* t, const DctShape& shape, const DctKernels& kernel, float* x) {
  const size_t n = shape.blocks();
  if (transposes(shape)) {
    const float* from[8];
    float* to[8];
    for (size_t b = 0; b < n; b += 8)
      for (size_t row = 0; row < 8; ++row) {
        rows_of(x, shape, row, b, to);
        columns_of(t, n, row, b, from);
        kernel.transpose8(from, to);
      }
    return;
  }
  for (size_t row = 0; row < shape.height; ++row) {
    const float* from = t + row % 8 * 8 * n + row / 8 * shape.across();
    float* to = x + row * shape.width;
    for (size_t b = 0; 8 * b < shape.width; ++b)
      for (size_t j = 0; j < std::min<size_t>(8, shape.width - 8 * b); ++j) to[8 * b + j] = from[j * n + b];
  }
}

}  // namespace

void dct_forward(const float* x, const DctShape& shape, const float* matrix, float* y, int threads) {
  const auto& kernel = dct_kernels();
  const size_t plane = shape.height * shape.width, n = shape.blocks();
  parallel(threads, shape.samples, [&](size_t sample) {
    Buffer<float> buffer(shape.coefficients());
    for (size_t c = 0; c < shape.channels; ++c) {
      float* t = buffer.data() + c * 64 * n;
      to_blocks(x + (sample * shape.channels + c) * plane, shape, kernel, t);
      for (size_t i = 0; i < 8; ++i) kernel.dct8(t + i * 8 * n, n, n);
      kernel.dct8(t, 8 * n, 8 * n);
    }
    kernel.rotate(buffer.data(), matrix, shape.channels, 64 * n, false, y + sample * shape.coefficients());
  });
}

void dct_inverse_sample(const float* y, const DctShape& shape, const float* matrix, float lowest, float highest, float* x,
                        float* buffer) {
  const auto& kernel = dct_kernels();
  const size_t plane = shape.height * shape.width, n = shape.blocks();
  kernel.rotate(y, matrix, shape.channels, 64 * n, true, buffer);
  for (size_t c = 0; c < shape.channels; ++c) {
    float* t = buffer + c * 64 * n;
    kernel.idct8(t, 8 * n, 8 * n);
    for (size_t i = 0; i < 8; ++i) kernel.idct8(t + i * 8 * n, n, n);
    from_blocks(t, shape, kernel, x + c * plane);
    kernel.clamp(x + c * plane, plane, lowest, highest);
  }
}

void dct_inverse(const float* y, const DctShape& shape, const float* matrix, float lowest, float highest, float* x,
                 int threads) {
  parallel(threads, shape.samples, [&](size_t sample) {
    Buffer<float> buffer(shape.coefficients());
    dct_inverse_sample(y + sample * shape.coefficients(), shape, matrix, lowest, highest, x + sample * shape.sample(),
                       buffer.data());
  });
}

void subtract_from(const float* x, size_t n, float* y) { dct_kernels().subtract(x, n, y); }
void copy_signs(const float* y, size_t n, float* x) { dct_kernels().copy_signs(y, n, x); }

void add_products(const double* rows, size_t count, size_t n, double* out) {
  for (size_t i = 0; i < count; i += 4)
    for (size_t j = 0; j <= i; j += 4) dct_kernels().add_dots(rows + i * n, rows + j * n, n, n, out + i * count + j, count);
}

}  // namespace cutlayer
