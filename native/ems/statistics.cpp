// Statistics for rate control: sums for reconstruction points, the squared error, and gathering of trial rows.
#include <algorithm>
#include <atomic>
#include <mutex>

#include "ems/padded_planes.hpp"

namespace cutlayer {

namespace {

// f(planes, first element, count) for pieces of at most `limit` elements: several planes, or parts of a row.
template <class F>
void for_pieces(const LevelPlanes& all, size_t limit, F f) {
  const size_t area = all.height * all.width, step = (all.height + 1) * all.up;
  LevelPlanes p = all;
  if (area <= limit) {
    for (size_t c = 0; c < all.planes; c += p.planes) {
      p.planes = std::min(all.planes - c, limit / area);
      if (all.plain) {
        p.plain = all.plain + c * area;
      } else {
        p.at = all.at + c * step;
        p.shifted_at = all.shifted_at + c * step;
      }
      f(p, c * area, p.planes * area);
    }
    return;
  }
  p.planes = p.height = 1;
  p.rows = {0, 1};
  for (size_t c = 0; c < all.planes; ++c)
    for (size_t y = all.rows.first; y < all.rows.last; ++y)
      for (size_t x = 0; x < all.width; x += limit) {
        const size_t at = c * step + y * all.up + x;
        p.at = all.at + at;
        p.shifted_at = all.shifted_at + at;
        p.width = std::min(limit, all.width - x);
        f(p, (c * all.height + y) * all.width + x, p.width);
      }
}

}  // namespace

void ems_level_sums(const float* x, const uint8_t* levels, const SectionShape& shape, Rows rows, float scale,
                    unsigned n_levels, size_t activities, int64_t* out, int64_t* squares, int threads) {
  const size_t symbols = n_levels + 1, bins = activities * symbols;
  constexpr size_t kMaxElements = size_t(1) << 22;  // that a table can add up before its words overflow
  const auto& kernel = ems_kernels();
  std::mutex adding;
  for_samples(shape, threads, [&](size_t first, size_t last) {
    std::vector<uint64_t> sums(kHistograms * bins);
    uint64_t squared = 0;
    size_t seen = 0;
    auto flush = [&] {
      const std::lock_guard<std::mutex> lock(adding);
      for (size_t t = 0; t < kHistograms; ++t)
        for (size_t i = 0; i < bins; ++i) {
          out[i] += int64_t(sums[t * bins + i] / kCountUnit);
          out[bins + i] += int64_t(sums[t * bins + i] % kCountUnit);
        }
      std::fill(sums.begin(), sums.end(), 0);
      if (squares) *squares += int64_t(squared);
      squared = seen = 0;
    };
    NeighbourPlanes around(shape, rows, n_levels, activities);
    for (size_t s = first; s < last; ++s) {
      const size_t start = s * shape.sample();
      for_pieces(around.load(levels + start, sample_size(shape, s)), kMaxElements,
                 [&](const LevelPlanes& p, size_t at, size_t n) {
        if (seen + n > kMaxElements) flush();
        seen += n;
        kernel.level_sums(p, levels + start + at, x + start + at, scale, sums.data(), bins, squares ? &squared : nullptr);
      });
    }
    flush();
  });
}

uint64_t ems_squared_error(const float* x, const uint8_t* levels, const SectionShape& shape, float scale,
                           unsigned n_levels, size_t activities, const int64_t* table, int threads) {
  std::vector<int16_t> known((activities * (n_levels + 1) + kLookupWords - 1) / kLookupWords * kLookupWords);
  for (size_t i = 0; i < activities * (n_levels + 1); ++i) known[i] = int16_t(table[i]);
  std::atomic<uint64_t> total{0};
  for_samples(shape, threads, [&](size_t first, size_t last) {
    NeighbourPlanes around(shape, {0, shape.height}, n_levels, activities);
    uint64_t sum = 0;
    for (size_t s = first; s < last; ++s) {
      const size_t start = s * shape.sample();
      sum += ems_kernels().squared_differences(around.load(levels + start, sample_size(shape, s)), x + start, scale,
                                               known);
    }
    total += sum;
  });
  return total;
}

void ems_gather_rows(const uint8_t* elements, size_t size, const SectionShape& shape, const int64_t* where,
                     size_t strips, size_t rows, uint8_t* out, int threads) {
  const size_t row = shape.width * size, height = shape.height, strip = shape.channels * rows * row;
  const size_t run = std::max<size_t>(1, (size_t(1) << 16) / strip);
  const auto copy = [&](size_t i) {
    uint8_t* to = out + i * strip;
    const int64_t sample = where[2 * i], first = where[2 * i + 1];
    // The rows of the next strip are far away in memory, where no hardware expects a read.
    const size_t next = std::min(strips - 1, i + 1);
    const uint8_t* ahead = elements + (size_t(where[2 * next]) * shape.channels * height +
                                       size_t(std::max<int64_t>(0, where[2 * next + 1]))) * row;
    for (size_t c = 0; c < shape.channels; ++c, ahead += height * row) {
      for (size_t b = 0; b < rows * row; b += 64) __builtin_prefetch(ahead + b);
      for (size_t r = 0; r < rows; ++r, to += row) {
        const int64_t y = first + int64_t(r);
        if (y < 0 || y >= int64_t(height)) std::memset(to, 0, row);
        else std::memcpy(to, elements + ((size_t(sample) * shape.channels + c) * height + size_t(y)) * row, row);
      }
    }
  };
  parallel(threads, (strips + run - 1) / run, [&](size_t r) {
    for (size_t i = r * run; i < std::min(strips, (r + 1) * run); ++i) copy(i);
  });
}

}  // namespace cutlayer
