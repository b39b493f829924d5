// The context model of DCT coefficients, in the same arithmetic as entropy/dct_context_model.py.
#include <cmath>

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

// Sums over the planes of one channel in every `stride`-th sample. Features: left, above, above left, above right, the
// parents, and last the level itself. Most levels are 0, and add nothing.
void add_moments(const uint8_t* levels, const SectionShape& shape, size_t channel, size_t stride, unsigned shift,
                 Moments& m) {
  const size_t height = shape.height, width = shape.width, area = height * width;
  for (size_t s = 0; s < shape.d / shape.sample(); s += stride) {
    const uint8_t* plane = levels + s * shape.sample() + channel * area;
    for (size_t y = 0; y < height; ++y)
      for (size_t x = 0; x < width; ++x) {
        const uint8_t* at = plane + y * width + x;
        int32_t f[kFeatures + 1] = {};
        if (x) f[0] = at[-1];
        if (y) {
          f[1] = *(at - width);
          if (x) f[2] = *(at - width - 1);
          if (x + 1 < width) f[3] = *(at - width + 1);
        }
        for (size_t j = 0; j < 4; ++j)
          if (channel >= kParents[j]) f[4 + j] = *(at - kParents[j] * area);
        f[kFeatures] = *at;
        if (!(f[0] | f[1] | f[2] | f[3] | f[4] | f[5] | f[6] | f[7] | f[8])) continue;
        for (size_t i = 0; i <= kFeatures; ++i) {
          f[i] >>= shift;
          m.sums[i] += f[i];
          if (f[i])
            for (size_t j = 0; j <= i; ++j) m.products[i][j] += f[i] * (f[j]);
        }
      }
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
  const double positions = double((whole + stride - 1) / stride * shape.height * shape.width);
  const unsigned shift = unsigned(std::max(0, int(bit_length(n_levels)) - 5));
  std::vector<Moments> moments(channels);
  parallel(threads, channels, [&](size_t c) { add_moments(levels, shape, c, stride, shift, moments[c]); });
  constexpr size_t n = kFeatures;
  double pooled[n + 1][n + 1] = {};
  for (size_t c = 0; c < channels; ++c) {
    const Moments& m = moments[c];
    const auto centred = [&](size_t i, size_t j) {
      const int64_t product = i >= j ? m.products[i][j] : m.products[j][i];
      return double(product) - double(m.sums[i]) * double(m.sums[j]) / positions;
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
