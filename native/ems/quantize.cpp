#include "ems/ems.hpp"

#include <cmath>
#include <cstring>

#include "ems/padded_planes.hpp"
#include "common/float16.hpp"

namespace cutlayer {
namespace {

// f(first, count) for each chunk of d elements, in parallel.
template <class F>
void for_chunks(size_t d, int threads, F f) {
  parallel(threads, (d + kChunk - 1) / kChunk, [&](size_t c) { f(c, c * kChunk, std::min(kChunk, d - c * kChunk)); });
}

// From i on, past eight zeros at a time: most levels are zero.
size_t next_level(const uint8_t* levels, size_t i, size_t d) {
  for (uint64_t eight; i + 8 <= d && (std::memcpy(&eight, levels + i, 8), eight == 0);) i += 8;
  return i;
}

}  // namespace

void ems_quantize(const float* x, size_t d, float scale, unsigned most, float mark_from, uint8_t* out, int threads) {
  constexpr size_t kPiece = kChunk / 4;  // so that there are some for each thread where steps are tried
  parallel(threads, (d + kPiece - 1) / kPiece, [&](size_t c) {
    const size_t i = c * kPiece;
    ems_kernels().levels(x + i, std::min(kPiece, d - i), scale, most, mark_from, out + i);
  });
}

double ems_energy(const float* x, size_t d, int threads) {
  std::vector<double> parts((d + kChunk - 1) / kChunk);
  for_chunks(d, threads, [&](size_t c, size_t i, size_t n) { parts[c] = ems_kernels().energy(x + i, n); });
  double total = 0;
  for (double part : parts) total += part;
  return total;
}

void ems_sample_offsets(const uint8_t* levels, const EmsShape& shape, unsigned most, bool is_signed, int64_t* tops,
                int64_t* signs, int threads) {
  const size_t n = shape.samples(), size = shape.sample();
  for_samples(shape, threads, [&](size_t first, size_t last) {
    for (size_t s = first; s < last; ++s) {
      const size_t count = sample_size(shape, s), marks = ems_kernels().count(levels + s * size, count, uint8_t(most));
      tops[s + 1] = int64_t(marks);
      signs[s + 1] = is_signed ? int64_t(count - marks - ems_kernels().count(levels + s * size, count, 0)) : 0;
    }
  });
  tops[0] = signs[0] = 0;
  for (size_t s = 0; s < n; ++s) tops[s + 1] += tops[s], signs[s + 1] += signs[s];
}

void ems_quantize_evenly(const float* x, size_t d, double topmin, unsigned levels, bool nearest, uint8_t* out,
                      int threads) {
  const double n = double(levels), last = n - 1;
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
    kernels().top_mask(x + first, n, chunk.cut, keep);
    if (count_bits(keep, n) != chunk.count) throw Changed();
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

std::string ems_pack_bits(const int64_t* codes, size_t n, unsigned width) {
  std::string out((n * width + 7) / 8, '\0');
  uint64_t word = 0;
  unsigned filled = 0;
  size_t at = 0;
  for (size_t i = 0; i < n; ++i) {
    word |= uint64_t(codes[i]) << filled;
    for (filled += width; filled >= 8; filled -= 8, word >>= 8) out[at++] = char(word);
  }
  if (filled) out[at] = char(word);
  return out;
}

bool ems_unpack_bits(const uint8_t* in, size_t n, unsigned width, int64_t* out) {
  uint64_t word = 0;
  unsigned filled = 0;
  const uint64_t mask = (uint64_t(1) << width) - 1;
  for (size_t i = 0; i < n; ++i) {
    for (; filled < width; filled += 8) word |= uint64_t(*in++) << filled;
    out[i] = int64_t(word & mask);
    word >>= width;
    filled -= width;
  }
  return word == 0;
}

std::string ems_pack_signs(const float* x, const uint8_t* levels, size_t d, uint8_t mark) {
  std::string out;
  uint32_t word = 0, filled = 0;
  for (size_t i = 0; i < d; i = next_level(levels, i + 1, d)) {
    const uint32_t counts = levels[i] != 0 && levels[i] != mark;
    word |= (uint32_t(x[i] < 0) & counts) << filled;
    filled += counts;
    if (filled == 8) {
      out.push_back(char(word));
      word = filled = 0;
    }
  }
  if (filled) out.push_back(char(word));
  return out;
}

void ems_dequantize(const uint8_t* levels, const EmsShape& shape, const float* table, size_t kinds, unsigned most,
                 const float* tops, const int64_t* tops_at, const uint8_t* signs, const int64_t* signs_at, float* out,
                 int threads) {
  const size_t size = shape.sample();
  EmsLookup known;
  known.values.assign(table, table + kinds * (most + 1));
  const size_t room = (known.values.size() + kRound - 1) / kRound * kRound;
  known.low.resize(room);
  known.high.resize(room);
  for (size_t i = 0; i < known.values.size(); ++i) {
    const uint32_t raw = bits_of(known.values[i]);
    known.low[i] = uint16_t(raw);
    known.high[i] = uint16_t(raw >> 16);
  }
  for_samples(shape, threads, [&](size_t first, size_t last) {
    Surroundings around(shape, {0, shape.height}, most, kinds);
    for (size_t s = first; s < last; ++s) {
      const size_t count = sample_size(shape, s);
      const uint8_t* l = levels + s * size;
      float* y = out + s * size;
      if (kinds == 1)
        ems_kernels().look_up(l, count, known, y);
      else
        ems_kernels().rebuild(around.load(l, count), known, y);
      if (signs) {
        const uint8_t* sign = signs + signs_at[s];
        for (size_t i = 0; i < count; i = next_level(l, i + 1, count))
          if (l[i] != 0 && l[i] != most) {
            y[i] = *sign ? -y[i] : y[i];
            ++sign;
          }
      }
      const float* top = tops + tops_at[s];
      for (const uint8_t *p = l, *end = l + count; (p = static_cast<const uint8_t*>(std::memchr(p, int(most), size_t(end - p)))); ++p)
        y[p - l] = *top++;
    }
  });
}

}  // namespace cutlayer
