// The context model of DCT coefficients, in the same arithmetic as entropy/dct_context_model.py.
#include <cmath>
#include <cstring>

#include "ems/dct_section.hpp"
#include "ems/padded_planes.hpp"

namespace cutlayer {
namespace {

// How many channels back the parents are: the next lower frequency across and down, and the one and two rotated channels
// before.
constexpr size_t kParents[4] = {1, 8, 64, 128};
constexpr double kGains[4] = {1.0, 2.0, 4.0, 8.0};
constexpr size_t kFeatures = 8;  // four neighbours and four parents
constexpr size_t kFitElements = size_t(1) << 20;
constexpr double kMinVariance = 0.02;

struct Moments {
  int64_t products[kFeatures + 1][kFeatures + 1] = {};
  int64_t sums[kFeatures + 1] = {};
};

int8_t rounded(double weight) { return int8_t(std::min(127.0, std::max(-127.0, std::nearbyint(weight * 32)))); }

constexpr size_t kAround = 128;  // bytes that may be read before the first and behind the last level

// The levels of all channels, each with its planes one after the other: (channels, positions), behind kAround zeros.
std::vector<uint8_t> by_channel(const uint8_t* levels, const SectionShape& shape, size_t stride, size_t positions,
                                unsigned shift) {
  const size_t area = shape.height * shape.width;
  std::vector<uint8_t> out(shape.channels * positions + 2 * kAround);
  uint8_t* to = out.data() + kAround;
  for (size_t s = 0; s < shape.d / shape.sample(); s += stride, to += area)
    with_width(area, [&](auto copy) {
      for (size_t c = 0; c < shape.channels; ++c) copy(to + c * positions, levels + s * shape.sample() + c * area);
    });
  if (shift) shift_levels(out.data(), out.size(), shift, out.data());
  return out;
}

// Left, above, above left, above right: rows up and columns to the left. In planes of which 64 elements are a multiple,
// `there` is 255 for those of 64 elements that have this neighbour.
struct Neighbours {
  static constexpr size_t up[4] = {0, 1, 1, 1};
  static constexpr int left[4] = {1, 0, 1, -1};
  uint8_t there[4][64];
  explicit Neighbours(const SectionShape& shape) {
    const size_t width = shape.width, area = shape.height * width;
    for (size_t t = 0; t < 4; ++t)
      for (size_t i = 0; i < 64; ++i) {
        const int x = int(i % width) - left[t];
        there[t][i] = i % area / width >= up[t] && x >= 0 && x < int(width) ? 255 : 0;
      }
  }
};

// Rows of features of one channel: left, above, above left, above right, the parents, and last the level itself.
void make_features(const uint8_t* levels, const SectionShape& shape, const Neighbours& neighbours, size_t channel,
                   size_t positions, uint8_t* features) {
  const size_t width = shape.width, area = shape.height * width;
  const uint8_t* own = levels + channel * positions;
  const auto row = [&](size_t f) { return features + f * positions; };
  // Shifted copies of all planes; what comes from another row or plane is set to 0.
  for (size_t t = 0; t < 4; ++t) {
    uint8_t* to = row(t);
    const size_t up = neighbours.up[t];
    const int left = neighbours.left[t];
    const uint8_t *from = own - ptrdiff_t(up * width) - left, *there = neighbours.there[t];
    if (64 % area == 0 && positions % 64 == 0) {
      for (size_t i = 0; i < positions; i += 64)
        for (size_t j = 0; j < 64; ++j) to[i + j] = uint8_t(from[i + j] & there[j]);
      continue;
    }
    for (size_t at = 0, y = 0; at < positions; at += width, y = y + 1 < shape.height ? y + 1 : 0) {
      if (y < up) {
        std::memset(to + at, 0, width);
        continue;
      }
      const size_t first = left > 0, last = width - (left < 0);
      to[at] = to[at + width - 1] = 0;
      std::memcpy(to + at + first, from + at + first, last - first);
    }
  }
  for (size_t j = 0; j < 4; ++j)
    if (channel >= kParents[j]) std::memcpy(row(4 + j), own - kParents[j] * positions, positions);
    else std::memset(row(4 + j), 0, positions);
  std::memcpy(row(kFeatures), own, positions);
}

// Moments of one channel.
void add_moments(const uint8_t* features, size_t positions, const std::vector<uint8_t>& ones, Moments& m) {
  constexpr size_t rows = kFeatures + 1, half = 4;
  const auto dots = [&](size_t part, const uint8_t* by, auto put) {
    uint32_t found[5];
    ems_kernels().dots5(features + part * positions, by, positions, found);
    for (size_t g = 0; g < 5; ++g) put(part + g, found[g]);
  };
  for (size_t part : {size_t(0), half}) {
    for (size_t f = 0; f <= (part ? rows - 1 : half); ++f)
      dots(part, features + f * positions, [&](size_t g, uint32_t n) { m.products[f][g] = m.products[g][f] = n; });
    dots(part, ones.data(), [&](size_t g, uint32_t n) { m.sums[g] = n; });
  }
}

// Solves for the weights by Gauss-Jordan elimination, as `solve` in entropy/least_squares.py.
void solve(double (*a)[kFeatures + 1]) {
  constexpr size_t n = kFeatures;
  for (size_t i = 0; i < n; ++i) a[i][i] += 1e-3 * a[i][i] + 1.0;
  for (size_t i = 0; i < n; ++i) {
    const double pivot = a[i][i];
    for (size_t j = i; j <= n; ++j) a[i][j] /= pivot;
    for (size_t r = 0; r < n; ++r) {
      const double factor = r == i ? 0.0 : a[r][i];
      for (size_t j = i; j <= n; ++j) a[r][j] -= factor * a[i][j];
    }
  }
}

OwnModel model_of(const double* weights, const std::vector<double>& constants, double gain) {
  const size_t channels = constants.size();
  OwnModel model;
  model.rows = channels;
  model.parents = 4;
  model.shared = true;
  int8_t row[kFeatures];
  for (size_t i = 0; i < kFeatures; ++i) row[i] = rounded(gain * weights[i]);
  for (size_t c = 0; c < channels; ++c) {
    model.weights.push_back(rounded(gain * constants[c]));
    model.weights.insert(model.weights.end(), row, row + 4);
    for (size_t j = 0; j < 4; ++j) {
      // A weight of 0 means no parent. A parent before channel 0 does not exist.
      model.distance.push_back(row[4 + j] && kParents[j] <= c ? uint8_t(kParents[j]) : 0);
      model.parent.push_back(row[4 + j]);
    }
  }
  return model;
}

}  // namespace

OwnModel fit_dct_model(const uint8_t* levels, const SectionShape& shape, unsigned n_levels, const int64_t* cost_of,
                       int threads) {
  const size_t channels = shape.channels, whole = shape.d / shape.sample();
  const size_t stride = std::max<size_t>(1, whole * shape.sample() / kFitElements);
  const size_t many = (whole + stride - 1) / stride * shape.height * shape.width;
  const double positions = double(many);
  const unsigned shift = unsigned(std::max(0, int(bit_length(n_levels)) - 5));
  std::vector<Moments> moments(channels);
  const std::vector<uint8_t> padded = by_channel(levels, shape, stride, many, shift), ones(many, 1);
  const uint8_t* const sorted = padded.data() + kAround;
  std::vector<char> any(channels);  // whether a channel has a level above 0
  for (size_t c = 0; c < channels; ++c)
    any[c] = ems_kernels().count(sorted + c * many, many, 0) < many;
  const Neighbours neighbours(shape);
  constexpr size_t kRun = 64;
  parallel(threads, (channels + kRun - 1) / kRun, [&](size_t r) {
    std::vector<uint8_t> features((kFeatures + 1) * many);
    for (size_t c = r * kRun; c < std::min(channels, (r + 1) * kRun); ++c) {
      bool some = any[c];
      for (size_t back : kParents) some |= c >= back && any[c - back];
      if (!some) continue;  // all are 0
      make_features(sorted, shape, neighbours, c, many, features.data());
      add_moments(features.data(), many, ones, moments[c]);
    }
  });
  constexpr size_t n = kFeatures;
  double pooled[n + 1][n + 1] = {};
  for (size_t c = 0; c < channels; ++c) {
    const Moments& m = moments[c];
    const auto centred = [&](size_t i, size_t j) {
      return double(m.products[i][j]) - double(m.sums[i]) * double(m.sums[j]) / positions;
    };
    // Normalised by its variance, each channel counts about equally.
    const double variance = centred(n, n) + kMinVariance * positions;
    for (size_t i = 0; i <= n; ++i)
      for (size_t j = 0; j <= n; ++j) pooled[i][j] += centred(i, j) / variance;
  }
  solve(pooled);
  double weights[n];
  for (size_t i = 0; i < n; ++i) weights[i] = pooled[i][n];
  std::vector<double> constants(channels);
  for (size_t c = 0; c < channels; ++c) {
    double explained = 0;
    for (size_t i = 0; i < n; ++i) explained += weights[i] * (double(moments[c].sums[i]) / positions);
    constants[c] = double(moments[c].sums[n]) / positions - explained;
  }
  OwnModel best;
  int64_t least = -1;
  Buffer<uint8_t> contexts(shape.d);
  std::vector<int64_t> histogram(kPredictions * (n_levels + 1)), frequencies(histogram.size());
  int64_t starts[kPredictions];
  for (double gain : kGains) {
    OwnModel model = model_of(weights, constants, gain);
    std::fill(histogram.begin(), histogram.end(), 0);
    ems_contexts(levels, shape, {0, shape.height}, model.view(n_levels), n_levels, contexts.data(), histogram.data(),
                 threads_for(shape.d, threads));
    int64_t cost = 0;
    ems_frequency_tables(histogram.data(), n_levels + 1, 24, 160, cost_of, starts, frequencies.data(), cost);
    if (least < 0 || cost < least) {
      least = cost;
      best = std::move(model);
    }
  }
  return best;
}

}  // namespace cutlayer
