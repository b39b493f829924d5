// Frequency tables for rANS from a histogram of levels by prediction, in the arithmetic of entropy/frequency_tables.py.
#include <algorithm>

#include "ems/ems.hpp"

namespace cutlayer {
namespace {

// Scales counts to integers that add up to kScale; a count above 0 gets at least 1.
void to_frequencies(const int64_t* counts, size_t symbols, int64_t total, int64_t* out) {
  int64_t sum = 0;
  for (size_t l = 0; l < symbols; ++l) {
    const int64_t scaled = (2 * counts[l] * kScale + total) / (2 * total);
    sum += out[l] = counts[l] ? std::max<int64_t>(1, scaled) : 0;
  }
  // The most frequent symbol absorbs the rounding error.
  while (sum != int64_t(kScale)) {
    int64_t& most = *std::max_element(out, out + symbols);
    const int64_t mended = std::max<int64_t>(1, most + int64_t(kScale) - sum);
    sum += mended - most;
    most = mended;
  }
}

}  // namespace

size_t ems_frequency_tables(const int64_t* histogram, size_t symbols, size_t max_classes, size_t min_elements,
                            const int64_t* cost_of, int64_t* starts, int64_t* frequencies, int64_t& cost) {
  int64_t counts[kPredictions] = {}, total = 0, before = 0, last = 0;
  for (size_t p = 0; p < kPredictions; ++p) {
    for (size_t l = 0; l < symbols; ++l) counts[p] += histogram[p * symbols + l];
    total += counts[p];
  }
  const int64_t wanted = std::min(int64_t(max_classes), std::max<int64_t>(1, total / int64_t(min_elements * symbols)));
  size_t classes = 0;
  starts[classes++] = 0;
  for (size_t p = 0; p < kPredictions; before += counts[p++]) {
    const int64_t target = before * wanted / total;
    if (target > last && before < total) starts[classes++] = int64_t(p);
    last = target;
  }
  std::vector<int64_t> sums(symbols);
  cost = 0;
  for (size_t c = 0; c < classes; ++c) {
    std::fill(sums.begin(), sums.end(), 0);
    const size_t end = c + 1 < classes ? size_t(starts[c + 1]) : kPredictions;
    int64_t all = 0;
    for (size_t p = size_t(starts[c]); p < end; all += counts[p++])
      for (size_t l = 0; l < symbols; ++l) sums[l] += histogram[p * symbols + l];
    to_frequencies(sums.data(), symbols, all, frequencies + c * symbols);
    for (size_t l = 0; l < symbols; ++l) cost += sums[l] * cost_of[frequencies[c * symbols + l]];
  }
  return classes;
}

}  // namespace cutlayer
