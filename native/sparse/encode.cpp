#include "sparse/encode.hpp"

#include <cstring>

#include "common/parallel.hpp"
#include "common/float16.hpp"

namespace cutlayer {
namespace {

// The smallest magnitude, as bits, that gets level `l`. Products of a float and a small integer are exact in double, so
// the comparison is exact, as FORMAT.md demands.
uint32_t level_threshold(unsigned l, double topmin, unsigned bits, bool nearest) {
  if (topmin == 0) return kAboveAll;
  const double n = double((1u << bits) - 1);
  auto enough = [&](uint32_t a) {
    const double v = double(float_of(a));
    if (!nearest) return v * n >= double(l) * topmin;
    const double twice = 2 * v * n, half = double(2 * l - 1) * topmin;
    return l % 2 == 0 ? twice >= half : twice > half;  // ties to even
  };
  uint32_t a = bits_of(float((nearest ? double(l) - 0.5 : double(l)) * topmin / n));
  while (a > 0 && enough(a - 1)) --a;
  while (!enough(a)) ++a;
  return a;
}

// f(index, row, chunk) for every chunk of every row, in parallel.
template <class F>
void for_chunks(const Shape& shape, int threads, F f) {
  parallel(threads, shape.rows * shape.chunks(), [&](size_t i) { f(i, i / shape.chunks(), i % shape.chunks()); });
}

}  // namespace

void ms_encode(const float* x, const Selection& top, unsigned bits, bool nearest, bool is_signed,
               Values kind, uint8_t* out, int threads) {
  const Shape& shape = top.shape;
  const unsigned width = bits + (is_signed ? 1 : 0);
  const size_t mask_bytes = bit_bytes(shape.d, width);
  const size_t section = mask_bytes + size_t(shape.k) * value_size(kind);
  std::vector<MsCode> codes(shape.rows);
  for (size_t r = 0; r < shape.rows; ++r) {
    MsCode& code = codes[r];
    code = {bits, nearest, is_signed, double(rounded_to(kind, top.topmin[r])), {}};
    if (bits <= 3)
      for (unsigned l = 1; l + 1 < (1u << bits); ++l) code.levels[l - 1] = level_threshold(l, code.topmin, bits,
          nearest);
  }
  for_chunks(shape, threads, [&](size_t i, size_t r, size_t c) {
    uint8_t* at = out + r * section;
    uint8_t* values = at + mask_bytes + size_t(top.chunks[i].before) * value_size(kind);
    uint8_t* end = values + size_t(top.chunks[i].count) * value_size(kind);
    if (kernels().ms_pack(x + r * shape.d + c * kChunk, shape.length(c), top.chunks[i].threshold, codes[r],
                          at + c * kChunk / 8 * width, values, end, kind) != end)
      throw DataChanged();
  });
}

std::vector<Range> ranges(const float* x, size_t rows, size_t d, int threads) {
  const Shape shape{rows, d, 1};
  std::vector<Range> parts(rows * shape.chunks()), result(rows);
  for_chunks(shape, threads, [&](size_t i, size_t r, size_t c) {
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

// The kept elements of a section: thresholds of chunks (top-k), or a bit mask (random choices).
struct Kept {
  std::vector<Chunk> chunks;
  std::vector<uint64_t> bits;
  uint32_t max_bits;
};

Kept keep_row(const float* x, const Shape& shape, const Sparse& how, uint32_t section, int threads) {
  Kept kept{std::vector<Chunk>(shape.chunks()), {}, 0};
  if (how.pick == Pick::random) {
    for (const Range& range : ranges(x, 1, shape.d, threads)) kept.max_bits = range.max_bits;
  } else {
    kept.max_bits = select_row(x, shape, threads, kept.chunks.data()).max_bits;
  }
  if (kept.max_bits > kMaxFinite || how.pick == Pick::topk) return kept;
  kept.bits.resize((shape.d + kBlock - 1) / kBlock);
  sample_row(x, shape, how.pick == Pick::random ? nullptr : kept.chunks.data(), how.sampling, section, threads,
             kept.bits.data());
  uint64_t before = 0;
  for (size_t c = 0; c < shape.chunks(); ++c) {
    kept.chunks[c].before = before;
    kept.chunks[c].count = count_bits(kept.bits.data() + c * kChunk / kBlock, shape.length(c));
    before += kept.chunks[c].count;
  }
  if (before != shape.k) throw DataChanged();
  return kept;
}

uint32_t sparse_row(const float* x, const Shape& shape, const Sparse& how, uint32_t section, uint8_t* out,
                    int threads) {
  const Kept kept = keep_row(x, shape, how, section, threads);
  if (kept.max_bits > kMaxFinite) return kept.max_bits;
  const size_t where = how.keys ? size_t(shape.k) * 4 : bit_bytes(shape.d, 1);
  for_chunks({1, shape.d, shape.k}, threads, [&](size_t, size_t, size_t c) {
    const size_t n = shape.length(c), before = size_t(kept.chunks[c].before);
    const float* at = x + c * kChunk;
    uint64_t buffer[kChunk / kBlock];
    const uint64_t* marks = buffer;
    if (how.pick == Pick::topk) {
      kernels().top_mask(at, n, kept.chunks[c].threshold, buffer);
      if (count_bits(buffer, n) != kept.chunks[c].count) throw DataChanged();
    } else {
      marks = kept.bits.data() + c * kChunk / kBlock;
    }
    if (how.keys) {
      uint8_t* key = out + 4 * before;
      for (size_t w = 0; w < (n + kBlock - 1) / kBlock; ++w)
        for (uint64_t m = marks[w]; m; m &= m - 1, key += 4) {
          const uint32_t index = uint32_t(c * kChunk + w * kBlock + size_t(__builtin_ctzll(m)));
          std::memcpy(key, &index, 4);
        }
    } else {
      std::memcpy(out + c * kChunk / 8, marks, bit_bytes(n, 1));
    }
    kernels().gather_values(at, n, marks, how.scale, out + where + before * value_size(how.kind), how.kind);
  });
  return kept.max_bits;
}

}  // namespace

uint32_t sparse_encode(const float* x, Shape shape, const Sparse& how, uint8_t* out, int threads) {
  const size_t where = how.keys ? size_t(shape.k) * 4 : bit_bytes(shape.d, 1);
  const size_t section = where + size_t(shape.k) * value_size(how.kind);
  const bool by_row = shape.rows > 1;
  std::vector<uint32_t> largest(shape.rows);
  parallel(by_row ? threads : 1, shape.rows, [&](size_t r) {
    largest[r] = sparse_row(x + r * shape.d, shape, how, uint32_t(r), out + r * section,
                            by_row ? 1 : threads);
  });
  return *std::max_element(largest.begin(), largest.end());
}

void qu_encode(const float* x, size_t d, const std::vector<Range>& ranges, unsigned bits, bool stochastic,
               uint64_t seed, bool own_range, uint8_t* out, int threads) {
  const Shape shape{ranges.size(), d, 1};
  const size_t head = own_range ? 8 : 0, section = head + bit_bytes(d, bits);
  for_chunks(shape, threads, [&](size_t, size_t r, size_t c) {
    const Range& range = ranges[r];
    uint8_t* at = out + r * section;
    if (own_range && c == 0) {
      std::memcpy(at, &range.lo, 4);
      std::memcpy(at + 4, &range.hi, 4);
    }
    const double width = double(range.hi) - double(range.lo);
    const double scale = width > 0 ? double((1u << bits) - 1) / width : 0;
    const size_t first = r * d + c * kChunk;
    kernels().qu_pack(x + first, shape.length(c), double(range.lo), scale, bits, stochastic, seed, first,
                      at + head + c * kChunk / 8 * bits);
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
