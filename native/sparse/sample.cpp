#include "sparse/sample.hpp"

#include <cstring>

#include "common/parallel.hpp"

namespace cutlayer {
namespace {

// The random streams of a section (FORMAT.md, "Randomness").
enum Stream : uint32_t { kHits = 1, kTop = 2, kOthers = 3 };

// How many of k draws without replacement fall on top elements. Counts are exact in double.
uint64_t top_draws(const Shape& shape, const Sampling& sampling, uint32_t section) {
  double top = double(shape.k), others = double(shape.d - shape.k);
  const double a = (1 - sampling.alpha) / top, b = others > 0 ? sampling.alpha / others : 0;
  uint32_t words[kSpan];
  for (uint64_t j = 0; j < shape.k; j += kSpan) {
    const size_t n = size_t(std::min<uint64_t>(kSpan, shape.k - j));
    kernels().random(sampling.seed, kHits, section, j, n, words);
    for (size_t i = 0; i < n; ++i) {
      const double u = double(words[i]) * (1.0 / 4294967296.0), left = top * a;
      const bool hit = sampling.coin ? u >= sampling.alpha : u * (left + others * b) < left;
      if (top > 0 && (hit || others == 0)) top -= 1;
      else others -= 1;
    }
  }
  return shape.k - uint64_t(top);
}

// A random subset of m of n positions as a bit set, with one spare word behind it. Positions are drawn with rejection
// of those drawn before. If m > n / 2, the complement is drawn.
std::vector<uint64_t> draw(const Sampling& sampling, Stream stream, uint32_t section, uint64_t m, uint64_t n) {
  __extension__ using Wide = unsigned __int128;
  std::vector<uint64_t> set(size_t(n / 64) + 2);
  const bool invert = m > n - m;
  uint32_t words[kSpan];
  uint64_t left = invert ? n - m : m;
  for (uint64_t first = 0; left;) {
    const size_t count = size_t(std::min<uint64_t>(kSpan, 2 * left));
    kernels().random(sampling.seed, stream, section, first, count, words);
    first += count;
    for (size_t i = 0; i < count; i += 2) {
      const uint64_t word = words[i] | uint64_t(words[i + 1]) << 32;
      const uint64_t place = uint64_t((Wide(word) * n) >> 64);
      const uint64_t old = set[place / 64], bit = 1ull << (place % 64);
      set[place / 64] = old | bit;
      left -= (old & bit) == 0;
    }
  }
  if (invert)
    for (uint64_t& word : set) word = ~word;
  return set;
}

}  // namespace

void sample_row(const float* x, const Shape& shape, const Chunk* top, const Sampling& sampling, uint32_t section,
                int threads, uint64_t* keep) {
  const size_t d = shape.d;
  const auto& kernel = kernels();
  if (!top) {
    const std::vector<uint64_t> set = draw(sampling, kOthers, section, shape.k, d);
    std::memcpy(keep, set.data(), (d + 63) / 64 * 8);
    if (d % 64) keep[d / 64] &= (1ull << (d % 64)) - 1;
    return;
  }
  const uint64_t hits = top_draws(shape, sampling, section), others = d - shape.k;
  const std::vector<uint64_t> top_set = draw(sampling, kTop, section, hits, shape.k),
                              other_set = draw(sampling, kOthers, section, shape.k - hits, others);
  parallel(threads, shape.chunks(), [&](size_t c) {
    const size_t n = shape.length(c);
    uint64_t* bits = keep + c * kChunk / kBlock;
    kernel.top_mask(x + c * kChunk, n, top[c].threshold, bits);
    if (count_bits(bits, n) != top[c].count) throw DataChanged();
    kernel.keep_sampled(bits, n, top_set.data(), top[c].before, other_set.data(), c * kChunk - top[c].before);
  });
}

}  // namespace cutlayer
