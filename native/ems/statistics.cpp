// Statistics of levels: what the elements behind them are like, and the tables that code them.
#include <algorithm>
#include <atomic>
#include <mutex>

#include "ems/padded_planes.hpp"

namespace cutlayer {

namespace {

// f(planes, first element, how many) for pieces of at most so many elements: several planes, or parts of a row.
template <class F>
void for_pieces(const EmsPlanes& all, size_t most, F f) {
  const size_t area = all.height * all.width, step = (all.height + 1) * all.up;
  EmsPlanes p = all;
  if (area <= most) {
    for (size_t c = 0; c < all.planes; c += p.planes) {
      p.planes = std::min(all.planes - c, most / area);
      if (all.plain) {
        p.plain = all.plain + c * area;
      } else {
        p.at = all.at + c * step;
        p.coarse_at = all.coarse_at + c * step;
      }
      f(p, c * area, p.planes * area);
    }
    return;
  }
  p.planes = p.height = 1;
  p.rows = {0, 1};
  for (size_t c = 0; c < all.planes; ++c)
    for (size_t y = all.rows.first; y < all.rows.last; ++y)
      for (size_t x = 0; x < all.width; x += most) {
        const size_t at = c * step + y * all.up + x;
        p.at = all.at + at;
        p.coarse_at = all.coarse_at + at;
        p.width = std::min(most, all.width - x);
        f(p, (c * all.height + y) * all.width + x, p.width);
      }
}

}  // namespace

void ems_level_sums(const float* x, const uint8_t* levels, const EmsShape& shape, EmsRows rows, float scale, unsigned most,
              size_t kinds, int64_t* out, int64_t* squares, int threads) {
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
      for (size_t t = 0; t < kTables; ++t)
        for (size_t i = 0; i < bins; ++i) {
          out[i] += int64_t(sums[t * bins + i] / kOne);
          out[bins + i] += int64_t(sums[t * bins + i] % kOne);
        }
      std::fill(sums.begin(), sums.end(), 0);
      *squares += int64_t(squared);
      squared = seen = 0;
    };
    Surroundings around(shape, rows, most, kinds);
    for (size_t s = first; s < last; ++s) {
      const size_t start = s * shape.sample();
      for_pieces(around.load(levels + start, sample_size(shape, s)), kMost, [&](const EmsPlanes& p, size_t at, size_t n) {
        if (seen + n > kMost) flush();
        seen += n;
        kernel.sums(p, levels + start + at, x + start + at, scale, sums.data(), bins, squared);
      });
    }
    flush();
  });
}

uint64_t ems_squared_error(const float* x, const uint8_t* levels, const EmsShape& shape, float scale, unsigned most,
                   size_t kinds, const int64_t* table, int threads) {
  std::vector<int16_t> known((kinds * (most + 1) + kRound - 1) / kRound * kRound);
  for (size_t i = 0; i < kinds * (most + 1); ++i) known[i] = int16_t(table[i]);
  std::atomic<uint64_t> total{0};
  for_samples(shape, threads, [&](size_t first, size_t last) {
    Surroundings around(shape, {0, shape.height}, most, kinds);
    uint64_t sum = 0;
    for (size_t s = first; s < last; ++s) {
      const size_t start = s * shape.sample();
      sum += ems_kernels().differences(around.load(levels + start, sample_size(shape, s)), x + start, scale, known);
    }
    total += sum;
  });
  return total;
}

void ems_gather_rows(const uint8_t* elements, size_t size, const EmsShape& shape, const int64_t* where, size_t strips,
                size_t rows, uint8_t* out, int threads) {
  const size_t row = shape.width * size, height = shape.height, strip = shape.channels * rows * row;
  const size_t run = std::max<size_t>(1, (size_t(1) << 16) / strip);
  const auto copy = [&](size_t i) {
    uint8_t* to = out + i * strip;
    const int64_t sample = where[2 * i], first = where[2 * i + 1];
    for (size_t c = 0; c < shape.channels; ++c)
      for (size_t r = 0; r < rows; ++r, to += row) {
        const int64_t y = first + int64_t(r);
        if (y < 0 || y >= int64_t(height)) std::memset(to, 0, row);
        else std::memcpy(to, elements + ((size_t(sample) * shape.channels + c) * height + size_t(y)) * row, row);
      }
  };
  parallel(threads, (strips + run - 1) / run, [&](size_t r) {
    for (size_t i = r * run; i < std::min(strips, (r + 1) * run); ++i) copy(i);
  });
}

namespace {

// Integers that add up to kScale, none 0 where the count is not.
void to_frequencies(const int64_t* counts, size_t symbols, int64_t total, int64_t* out) {
  int64_t sum = 0;
  for (size_t l = 0; l < symbols; ++l) {
    const int64_t scaled = (2 * counts[l] * kScale + total) / (2 * total);
    sum += out[l] = counts[l] ? std::max<int64_t>(1, scaled) : 0;
  }
  // What rounding left over goes to, or comes from, the most frequent.
  while (sum != int64_t(kScale)) {
    int64_t& most = *std::max_element(out, out + symbols);
    const int64_t mended = std::max<int64_t>(1, most + int64_t(kScale) - sum);
    sum += mended - most;
    most = mended;
  }
}

}  // namespace

size_t ems_frequency_tables(const int64_t* histogram, size_t symbols, size_t most_classes, size_t worth, const int64_t* cost_of,
                  int64_t* starts, int64_t* frequencies, int64_t& cost) {
  int64_t counts[kFine] = {}, total = 0, before = 0, last = 0;
  for (size_t p = 0; p < kFine; ++p) {
    for (size_t l = 0; l < symbols; ++l) counts[p] += histogram[p * symbols + l];
    total += counts[p];
  }
  const int64_t wanted = std::min(int64_t(most_classes), std::max<int64_t>(1, total / int64_t(worth * symbols)));
  size_t classes = 0;
  starts[classes++] = 0;
  for (size_t p = 0; p < kFine; before += counts[p++]) {
    const int64_t target = before * wanted / total;
    if (target > last && before < total) starts[classes++] = int64_t(p);
    last = target;
  }
  std::vector<int64_t> sums(symbols);
  cost = 0;
  for (size_t c = 0; c < classes; ++c) {
    std::fill(sums.begin(), sums.end(), 0);
    const size_t end = c + 1 < classes ? size_t(starts[c + 1]) : kFine;
    int64_t all = 0;
    for (size_t p = size_t(starts[c]); p < end; all += counts[p++])
      for (size_t l = 0; l < symbols; ++l) sums[l] += histogram[p * symbols + l];
    to_frequencies(sums.data(), symbols, all, frequencies + c * symbols);
    for (size_t l = 0; l < symbols; ++l) cost += sums[l] * cost_of[frequencies[c * symbols + l]];
  }
  return classes;
}

}  // namespace cutlayer
