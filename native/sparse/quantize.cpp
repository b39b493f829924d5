#include <cstring>
#include <limits>

#include "common/float16.hpp"
#include "sparse/chunks.hpp"
#include "sparse/encode.hpp"

namespace cutlayer {

std::vector<Range> ranges(const float* x, size_t rows, size_t d, int threads) {
  const Shape shape{rows, d, 1};
  std::vector<Range> parts(rows * shape.chunks()), result(rows);
  backwards(threads, parts.size(), [&](size_t i) {
    const size_t r = i / shape.chunks(), c = i % shape.chunks();
    parts[i] = kernels().range(x + r * d + c * kChunk, shape.length(c));
  });
  for (size_t r = 0; r < rows; ++r) {
    result[r] = parts[r * shape.chunks()];
    for (size_t c = 1; c < shape.chunks(); ++c) {
      const Range& part = parts[r * shape.chunks() + c];
      result[r] = {std::min(result[r].lo, part.lo), std::max(result[r].hi, part.hi),
                   std::max(result[r].max_bits, part.max_bits)};
    }
  }
  return result;
}

namespace {

// Floats in order as integers in order.
int64_t order_of(float v) {
  const uint32_t b = bits_of(v);
  return b >> 31 ? -int64_t(b & 0x7fffffffu) : int64_t(b);
}
float float_at(int64_t order) { return float_of(order < 0 ? uint32_t(-order) | 0x80000000u : uint32_t(order)); }

// The smallest float whose code is at least `level`. Codes never decrease with the element, since no rounding does.
float threshold(unsigned level, double lo, double scale, float hi) {
  const double rounder = 6755399441055744.0;  // adding 1.5 * 2^52 rounds to an integer, ties to even
  auto reached = [&](int64_t order) {
    return ((double(float_at(order)) - lo) * scale + rounder) - rounder >= double(level);
  };
  // From a guess, twice as far each time until the threshold is between `no` and `yes`; then by halves.
  const int64_t first = order_of(float(lo)), last = order_of(hi);
  int64_t no = std::clamp(order_of(float(lo + (double(level) - 0.5) / scale)), first, last), yes = no, step = 1;
  while (yes < last && !reached(yes)) no = yes, yes = std::min(last, yes + step), step *= 2;
  for (step = 1; no > first && reached(no); step *= 2) yes = no, no = std::max(first, no - step);
  while (yes - no > 1) (reached((yes + no) / 2) ? yes : no) = (yes + no) / 2;
  return float_at(yes);
}

QuCode qu_code(const Range& range, unsigned bits, bool stochastic, uint64_t seed) {
  const double lo = range.lo, width = double(range.hi) - lo, levels = double((1u << bits) - 1);
  const double scale = width > 0 ? levels / width : 0;
  QuCode code{bits, stochastic, false, seed, lo, scale, range.lo, float(scale), 0, {}};
  code.thresholds = !stochastic && bits <= 4 && (width == 0 || (width > 1e-30 && width < 1e30));
  if (!code.thresholds) return code;
  // Rounding errors of (x - lo) * scale in single precision are below 15 * 3 * 2^-24, far below 1/1024: truncation
  // gives the code or one less.
  code.half = 0.5f - 1.0f / 1024;
  std::fill(std::begin(code.next), std::end(code.next), std::numeric_limits<float>::infinity());
  for (unsigned l = 1; width > 0 && l < 1u << bits; ++l) code.next[l - 1] = threshold(l, lo, scale, range.hi);
  return code;
}

}  // namespace

void qu_encode(const float* x, size_t d, const std::vector<Range>& ranges, unsigned bits, bool stochastic,
               uint64_t seed, bool own_range, uint8_t* out, int threads) {
  const Shape shape{ranges.size(), d, 1};
  const size_t head = own_range ? 8 : 0, section = head + bit_bytes(d, bits);
  std::vector<QuCode> codes;
  for (const Range& range : ranges) codes.push_back(qu_code(range, bits, stochastic, seed));
  for_chunks(shape, threads, [&](size_t, size_t r, size_t c) {
    uint8_t* at = out + r * section;
    if (own_range && c == 0) {
      std::memcpy(at, &ranges[r].lo, 4);
      std::memcpy(at + 4, &ranges[r].hi, 4);
    }
    const size_t first = r * d + c * kChunk;
    kernels().qu_pack(x + first, shape.length(c), codes[r], first, at + head + c * kChunk / 8 * bits);
  });
}

static inline uint32_t grid(float x, double lo, double scale) {
  // Adding 1.5 * 2^52 rounds to an integer, ties to even, and leaves it in the lowest bits. The mask keeps the result
  // on the grid even if another thread changes the data meanwhile.
  const double rounded = (double(x) - lo) * scale + 6755399441055744.0;
  uint64_t bits;
  std::memcpy(&bits, &rounded, 8);
  return uint32_t(bits & 0xffff);
}

static double grid_scale(float lo, float hi) { return hi > lo ? 65535.0 / (double(hi) - double(lo)) : 0; }

void km_histogram(const float* x, size_t d, float lo, float hi, int64_t* bins) {
  const double scale = grid_scale(lo, hi);
  for (size_t i = 0; i < d; ++i) ++bins[grid(x[i], lo, scale)];
}

void km_encode(const float* x, size_t d, float lo, float hi, const uint8_t* cluster, unsigned bits,
               uint8_t* out) {
  const double scale = grid_scale(lo, hi);
  uint32_t word = 0, filled = 0;
  for (size_t i = 0; i < d; ++i) {
    word |= uint32_t(cluster[grid(x[i], lo, scale)]) << filled;
    for (filled += bits; filled >= 8; filled -= 8, word >>= 8) *out++ = uint8_t(word);
  }
  if (filled) *out = uint8_t(word);
}

}  // namespace cutlayer
