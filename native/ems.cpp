#include "ems.hpp"

#include <cmath>
#include <cstring>
#include <mutex>

#include "parallel.hpp"
#include "values.hpp"

namespace cutlayer {
namespace {

// f(first, count) for each chunk of d elements, in parallel.
template <class F>
void for_chunks(size_t d, int threads, F f) {
  parallel(threads, (d + kChunk - 1) / kChunk, [&](size_t c) { f(c, c * kChunk, std::min(kChunk, d - c * kChunk)); });
}

// Samples are handed out in runs, so that a thread makes its room once a run.
template <class F>
void for_samples(const EmsShape& shape, int threads, F f) {
  const size_t run = std::max<size_t>(1, (size_t(1) << 17) / shape.sample()), n = shape.samples();
  parallel(threads, (n + run - 1) / run, [&](size_t i) { f(i * run, std::min(n, (i + 1) * run)); });
}

// The planes of one sample within frames of zeros.
struct Framed {
  const EmsShape& shape;
  std::vector<uint8_t> room;
  explicit Framed(const EmsShape& shape) : shape(shape), room(shape.channels * shape.framed() + kSlack) {}
  uint8_t* plane(size_t c) { return room.data() + c * shape.framed() + shape.first(); }
  void load(const uint8_t* sample, size_t n, unsigned coarse) {
    if (n < shape.sample()) {  // one short row
      std::memset(plane(0), 0, shape.width);
      std::memcpy(plane(0), sample, n);
    } else {
      for (size_t c = 0; c < shape.channels; ++c, sample += shape.height * shape.width) {
        // Copies of a known size are single instructions, which matters for the short rows of deep cuts.
        if (shape.width == 8) rows(plane(c), sample, [](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 8); });
        else if (shape.width == 16)
          rows(plane(c), sample, [](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 16); });
        else if (shape.width == 32)
          rows(plane(c), sample, [](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 32); });
        else
          rows(plane(c), sample, [&](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, shape.width); });
      }
    }
    if (coarse)
      for (auto& level : room) level = uint8_t(level >> coarse);
  }
  template <class F>
  void rows(uint8_t* to, const uint8_t* from, F copy) {
    for (size_t y = 0; y < shape.height; ++y) copy(to + y * shape.pitch(), from + y * shape.width);
  }
};

size_t sample_size(const EmsShape& shape, size_t s) {
  return std::min(shape.sample(), shape.d - s * shape.sample());
}

unsigned bit_length(unsigned v) { return v ? 32 - unsigned(__builtin_clz(v)) : 0; }

}  // namespace

void ems_levels(const float* x, size_t d, float scale, unsigned most, float mark_from, uint8_t* out, int threads) {
  for_chunks(d, threads, [&](size_t, size_t i, size_t n) {
    ems_kernels().levels(x + i, n, scale, most, mark_from, out + i);
  });
}

void ems_dots(size_t many, const uint8_t* a, size_t m, const uint8_t* b, size_t k, size_t n, int64_t* out,
              int threads) {
  const size_t fours = (m + 3) / 4;
  parallel(threads, many * fours, [&](size_t at) {
    const size_t which = at / fours, i = 4 * (at % fours), rows = std::min<size_t>(4, m - i);
    for (size_t j = 0; j < k; ++j) {
      uint32_t found[4];
      ems_kernels().dots4(a + (which * m + i) * n, rows, b + (which * k + j) * n, n, found);
      for (size_t r = 0; r < rows; ++r) out[(which * m + i + r) * k + j] = found[r];
    }
  });
}

double ems_energy(const float* x, size_t d, int threads) {
  std::vector<double> parts((d + kChunk - 1) / kChunk);
  for_chunks(d, threads, [&](size_t c, size_t i, size_t n) { parts[c] = ems_kernels().energy(x + i, n); });
  double total = 0;
  for (double part : parts) total += part;
  return total;
}

size_t ems_count(const uint8_t* levels, size_t d, uint8_t value, int threads) {
  std::vector<size_t> parts((d + kChunk - 1) / kChunk);
  for_chunks(d, threads, [&](size_t c, size_t i, size_t n) { parts[c] = ems_kernels().count(levels + i, n, value); });
  size_t total = 0;
  for (size_t part : parts) total += part;
  return total;
}

void ems_equal_levels(const float* x, size_t d, double topmin, unsigned levels, bool nearest, uint8_t* out,
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

void ems_tops(const float* x, const Selection& top, size_t row, Values kind, int64_t* out, int64_t* where,
              int threads) {
  const size_t chunks = top.shape.chunks();
  for_chunks(top.shape.d, threads, [&](size_t c, size_t first, size_t n) {
    const Chunk& chunk = top.chunks[row * chunks + c];
    int64_t *to = out + chunk.before, *place = where + chunk.before;
    uint64_t keep[kChunk / kBlock];
    kernels().top_mask(x + first, n, chunk.cut, keep);
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

void ems_contexts(const uint8_t* levels, const EmsShape& shape, const EmsModel& model, unsigned most, uint8_t* out,
                  int64_t* histogram, int threads) {
  const size_t symbols = most + 1, bins = kFine * symbols, pitch = shape.pitch();
  const auto& kernel = ems_kernels();
  std::mutex adding;
  for_samples(shape, threads, [&](size_t first, size_t last) {
    Framed framed(shape);
    const size_t area = shape.height * pitch;
    std::vector<uint8_t> predicted(area + kSlack);
    std::vector<uint32_t> counts(kTables * bins);
    for (size_t s = first; s < last; ++s) {
      const size_t n = sample_size(shape, s);
      const uint8_t* in = levels + s * shape.sample();
      uint8_t* to = out + s * shape.sample();
      framed.load(in, n, model.coarse);
      for (size_t c = 0; c < shape.channels; ++c) {
        const size_t row = model.rows > 1 ? c : 0;
        const uint8_t* parent_at[4] = {};
        for (size_t j = 0; j < model.parents; ++j) {
          const uint8_t back = model.distance[row * model.parents + j];
          if (back) parent_at[j] = framed.plane(c - back);
        }
        kernel.predict(framed.plane(c), area, pitch, model.weights + 5 * row, model.parents, parent_at,
                       model.parent + row * model.parents, model.grain, predicted.data());
        for (size_t y = 0; y < shape.height; ++y) {
          const size_t at = (c * shape.height + y) * shape.width;
          if (at >= n) break;
          const size_t count = std::min(shape.width, n - at);
          const uint8_t* p = predicted.data() + y * pitch;
          if (count == 8) std::memcpy(to + at, p, 8);
          else if (count == 16) std::memcpy(to + at, p, 16);
          else std::memcpy(to + at, p, count);
        }
      }
      kernel.count_pairs(to, in, n, symbols, counts.data());
    }
    const std::lock_guard<std::mutex> lock(adding);
    for (size_t i = 0; i < bins; ++i) for (size_t t = 0; t < kTables; ++t) histogram[i] += counts[t * bins + i];
  });
}

namespace {

// By how many bits the sum of four neighbours is shifted to be one of 16 kinds.
unsigned kind_shift(unsigned most) {
  const unsigned coarse = std::max(0, int(bit_length(most)) - 5);
  return unsigned(std::max(0, int(bit_length(4 * (most >> coarse))) - 4));
}

// The planes of samples, and what they are like with coarser levels.
struct Surroundings {
  const EmsShape& shape;
  unsigned coarse, shift;
  Framed plain, coarser;
  Surroundings(const EmsShape& shape, unsigned most)
      : shape(shape), coarse(unsigned(std::max(0, int(bit_length(most)) - 5))), shift(kind_shift(most)), plain(shape),
        coarser(shape) {}
  // f(first element, levels, coarse levels, rows, elements of a row) for each plane of a sample.
  template <class F>
  void each_plane(const uint8_t* sample, size_t n, F f) {
    plain.load(sample, n, 0);
    if (coarse) coarser.load(sample, n, coarse);
    for (size_t c = 0; c < shape.channels; ++c)
      f(c * shape.height * shape.width, plain.plane(c), (coarse ? coarser : plain).plane(c), shape.height,
        std::min(shape.width, n));
  }
};

}  // namespace

void ems_sums(const float* x, const uint8_t* levels, const EmsShape& shape, float scale, unsigned most, size_t kinds,
              int64_t* out, int64_t* squares, int threads) {
  const size_t symbols = most + 1, bins = kinds * symbols;
  constexpr size_t kMost = size_t(1) << 22;  // elements that a table may take before its words overflow
  const auto& kernel = ems_kernels();
  std::mutex adding;
  for_samples(shape, threads, [&](size_t first, size_t last) {
    std::vector<uint64_t> sums(kTables * bins);
    uint64_t squared = 0;
    size_t seen = 0;
    auto flush = [&] {
      const std::lock_guard<std::mutex> lock(adding);
      for (size_t i = 0; i < kTables * bins; ++i) {
        out[i % bins] += int64_t(sums[i] / kOne);
        out[bins + i % bins] += int64_t(sums[i] % kOne);
        sums[i] = 0;
      }
      *squares += int64_t(squared);
      squared = seen = 0;
    };
    Surroundings around(shape, most);
    const unsigned shift = kinds == 1 ? 15 : around.shift;  // one kind: all sums are 0
    for (size_t s = first; s < last; ++s) {
      const size_t start = s * shape.sample();
      around.each_plane(
          levels + start, sample_size(shape, s),
          [&](size_t at, const uint8_t* l, const uint8_t* coarse, size_t height, size_t width) {
            const size_t rows = std::max<size_t>(1, kMost / width), columns = std::min(width, kMost);
            for (size_t y = 0; y < height; y += rows)
              for (size_t c = 0; c < width; c += columns) {
                const size_t h = std::min(rows, height - y), w = std::min(columns, width - c);
                if (seen + h * w > kMost) flush();
                seen += h * w;
                const size_t to = y * shape.pitch() + c, plain = start + at + y * width + c;
                kernel.sum_plane(l + to, coarse + to, h, w, shape.pitch(), shift, unsigned(symbols), levels + plain,
                                 x + plain, scale, sums.data(), bins, squared);
              }
          });
    }
    flush();
  });
}

std::string ems_pack(const int64_t* codes, size_t n, unsigned width) {
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

bool ems_unpack(const uint8_t* in, size_t n, unsigned width, int64_t* out) {
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

std::string ems_signs(const float* x, const uint8_t* levels, size_t d, uint8_t mark) {
  std::string out;
  uint32_t word = 0, filled = 0;
  for (size_t i = 0; i < d; ++i) {
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

void ems_rebuild(const uint8_t* levels, const EmsShape& shape, const float* table, size_t kinds, unsigned most,
                 const float* tops, const uint8_t* signs, float* out, int threads) {
  const size_t n = shape.samples(), size = shape.sample();
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
  // Where each sample's top values and signs begin.
  std::vector<size_t> tops_at(n + 1), signs_at(n + 1);
  for_samples(shape, threads, [&](size_t first, size_t last) {
    for (size_t s = first; s < last; ++s) {
      const size_t count = sample_size(shape, s);
      tops_at[s + 1] = ems_kernels().count(levels + s * size, count, uint8_t(most));
      if (signs) signs_at[s + 1] = count - tops_at[s + 1] - ems_kernels().count(levels + s * size, count, 0);
    }
  });
  for (size_t s = 0; s < n; ++s) tops_at[s + 1] += tops_at[s], signs_at[s + 1] += signs_at[s];
  for_samples(shape, threads, [&](size_t first, size_t last) {
    Surroundings around(shape, most);
    for (size_t s = first; s < last; ++s) {
      const size_t count = sample_size(shape, s);
      const uint8_t* l = levels + s * size;
      float* y = out + s * size;
      if (kinds == 1)
        ems_kernels().look_up(l, count, known, y);
      else
        around.each_plane(l, count, [&](size_t at, const uint8_t* p, const uint8_t* c, size_t height, size_t width) {
          ems_kernels().rebuild_plane(p, c, height, width, shape.pitch(), around.shift, most + 1, known, y + at);
        });
      if (signs) {
        const uint8_t* sign = signs + signs_at[s];
        for (size_t i = 0; i < count; ++i)
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
