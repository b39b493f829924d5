// Quantization: elements to levels, and the top values that are stored exactly.
#include <cmath>
#include <cstring>

#include "common/float16.hpp"
#include "ems/padded_planes.hpp"

namespace cutlayer {
namespace {

// f(chunk, first element, count) for each chunk of d elements, in parallel.
template <class F>
void for_chunks(size_t d, int threads, F f) {
  parallel(threads, (d + kChunk - 1) / kChunk, [&](size_t c) { f(c, c * kChunk, std::min(kChunk, d - c * kChunk)); });
}

}  // namespace

void ems_quantize(const float* x, size_t d, float scale, unsigned n_levels, float mark_from, uint8_t* out,
                  int threads) {
  constexpr size_t kPiece = kChunk / 4;  // small enough that the trial rows make several pieces a thread
  parallel(threads, (d + kPiece - 1) / kPiece, [&](size_t c) {
    const size_t i = c * kPiece;
    ems_kernels().levels(x + i, std::min(kPiece, d - i), scale, n_levels, mark_from, out + i);
  });
}

void ems_quantize_stochastically(const float* x, size_t d, float scale, unsigned n_levels, Draw draw, uint8_t* out,
                                 int threads) {
  for_chunks(d, threads, [&](size_t, size_t first, size_t count) {
    uint32_t words[kSpan];
    for (size_t i = first; i < first + count; i += kSpan) {
      const size_t n = std::min(kSpan, first + count - i);
      kernels().random(draw.seed, draw.stream, draw.section, i, n, words);
      ems_kernels().stochastic_levels(x + i, n, scale, n_levels, words, out + i);
    }
  });
}

std::vector<int64_t> ems_stochastic_tops(const float* x, const uint8_t* levels, size_t d, float scale,
                                         unsigned n_levels, Draw draw) {
  std::vector<int64_t> found;
  const uint8_t* const end = levels + d;
  for (const uint8_t* at = levels; at < end; ++at) {
    at = static_cast<const uint8_t*>(std::memchr(at, int(n_levels), size_t(end - at)));  // few levels are marks
    if (!at) break;
    const size_t i = size_t(at - levels);
    uint32_t word;
    int64_t level;
    kernels().random(draw.seed, draw.stream, draw.section, i, 1, &word);
    ems_kernels().stochastic_tops(x + i, &word, 1, scale, &level);
    found.push_back(level);
  }
  return found;
}

double ems_energy(const float* x, size_t d, int threads) {
  std::vector<double> parts((d + kChunk - 1) / kChunk);
  for_chunks(d, threads, [&](size_t c, size_t i, size_t n) { parts[c] = ems_kernels().energy(x + i, n); });
  double total = 0;
  for (double part : parts) total += part;
  return total;
}

void ems_quantize_evenly(const float* x, size_t d, double topmin, unsigned n_levels, bool nearest, uint8_t* out,
                         int threads) {
  const double n = double(n_levels), last = n - 1;
  for_chunks(d, threads, [&](size_t, size_t first, size_t count) {
    for (size_t i = first; i < first + count; ++i) {
      double q = topmin > 0 ? std::fabs(double(x[i])) * n / topmin : 0;
      q = q < last ? q : last;
      out[i] = uint8_t(nearest ? (q + 4503599627370496.0) - 4503599627370496.0 : q);  // ties to even
    }
  });
}

void ems_top_values(const float* x, const Selection& top, size_t row, Values kind, int64_t* out, int64_t* where,
                    int threads) {
  const size_t chunks = top.shape.chunks();
  for_chunks(top.shape.d, threads, [&](size_t c, size_t first, size_t n) {
    const Chunk& chunk = top.chunks[row * chunks + c];
    int64_t *to = out + chunk.before, *place = where + chunk.before;
    uint64_t keep[kChunk / kBlock];
    kernels().top_mask(x + first, n, chunk.threshold, keep);
    if (count_bits(keep, n) != chunk.count) throw DataChanged();
    for (size_t w = 0; w < (n + kBlock - 1) / kBlock; ++w)
      for (uint64_t m = keep[w]; m; m &= m - 1) {
        const size_t i = first + w * kBlock + size_t(__builtin_ctzll(m));
        uint32_t raw = 0;
        put_value(reinterpret_cast<uint8_t*>(&raw), kind, x[i]);
        *to++ = int64_t(raw);
        *place++ = int64_t(i);
      }
  });
}

}  // namespace cutlayer
