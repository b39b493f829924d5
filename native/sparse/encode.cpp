#include "sparse/encode.hpp"

#include <cstring>

#include "common/float16.hpp"
#include "common/parallel.hpp"
#include "sparse/chunks.hpp"

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

namespace {

// The kept elements of a section: where each chunk's values begin and how many they are; and the random sets.
struct Kept {
  std::vector<Chunk> chunks;
  Sample sample;
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
  const bool random = how.pick == Pick::random;
  kept.sample = random ? sample_all(shape, how.sampling, section) : sample_top(shape, how.sampling, section);
  uint64_t before = 0;
  for (size_t c = 0; c < shape.chunks(); ++c) {
    Chunk& chunk = kept.chunks[c];
    const uint64_t first = c * kChunk, tops = random ? 0 : chunk.count;
    kept.sample.chunks.push_back({kept.sample.top.data(), chunk.before, chunk.before + tops, kept.sample.others.data(),
                                  first - chunk.before, first - chunk.before + shape.length(c) - tops});
    const Sampled& sampled = kept.sample.chunks.back();
    if (c + 1 == shape.chunks()) {
      chunk.count = shape.k - before;  // the sets have k bits in all
    } else {
      chunk.count = count_between(sampled.others, sampled.other_at, sampled.other_end) +
                    (random ? 0 : count_between(sampled.top, sampled.top_at, sampled.top_end));
    }
    chunk.before = before;
    before += chunk.count;
  }
  return kept;
}

// Writes the mask of a chunk to `marks` and its values to the frame.
void pack_chunk(const float* x, size_t n, const Kept& kept, size_t c, const Sparse& how, uint64_t* marks,
                uint8_t* values) {
  const Chunk& chunk = kept.chunks[c];
  uint8_t* end = values + size_t(chunk.count) * value_size(how.kind);
  uint8_t* at = nullptr;
  if (how.pick == Pick::topk) {
    at = kernels().top_pack(x, n, chunk.threshold, marks, values, end, how.kind);
  } else if (how.pick == Pick::randomized_topk) {
    at = kernels().sampled_pack(x, n, chunk.threshold, kept.sample.chunks[c], marks, values, end, how.kind);
  } else {
    std::memcpy(marks, kept.sample.others.data() + c * kChunk / kBlock, (n + kBlock - 1) / kBlock * 8);
    at = kernels().marked_pack(x, n, marks, how.scale, values, end, how.kind);
  }
  if (at != end) throw DataChanged();
}

uint32_t sparse_row(const float* x, const Shape& shape, const Sparse& how, uint32_t section, uint8_t* out,
                    int threads) {
  const Kept kept = keep_row(x, shape, how, section, threads);
  if (kept.max_bits > kMaxFinite) return kept.max_bits;
  const size_t where = how.keys ? size_t(shape.k) * 4 : bit_bytes(shape.d, 1);
  for_chunks({1, shape.d, shape.k}, threads, [&](size_t, size_t, size_t c) {
    const size_t n = shape.length(c), before = size_t(kept.chunks[c].before);
    uint64_t marks[kChunk / kBlock];
    pack_chunk(x + c * kChunk, n, kept, c, how, marks, out + where + before * value_size(how.kind));
    if (!how.keys) {
      std::memcpy(out + c * kChunk / 8, marks, bit_bytes(n, 1));
      return;
    }
    uint8_t* key = out + 4 * before;
    for (size_t w = 0; w < (n + kBlock - 1) / kBlock; ++w)
      for (uint64_t m = marks[w]; m; m &= m - 1, key += 4) {
        const uint32_t index = uint32_t(c * kChunk + w * kBlock + size_t(__builtin_ctzll(m)));
        std::memcpy(key, &index, 4);
      }
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

}  // namespace cutlayer
