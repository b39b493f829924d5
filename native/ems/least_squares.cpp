// Weights of predictions by least squares, in the same arithmetic, operation by operation, as entropy/fit.py.
#include <cmath>
#include <cstring>
#include <memory>

#include "ems/padded_planes.hpp"

namespace cutlayer {
namespace {

constexpr size_t kOwn = 1 + kNeighbours;         // features: a constant and the neighbours
constexpr size_t kMostFeatures = kOwn + 4;       // and parents
constexpr double kUnit = 32, kFarthest = 255;

// Of one channel, feature by feature, the level itself last, at every so manyth place of every so manyth sample.
void features_of(const uint8_t* levels, const EmsShape& shape, const EmsFit& fit, size_t channel, uint8_t* out) {
  const size_t places = fit.places, height = shape.height, width = shape.width;
  std::memset(out, 1, places);
  uint8_t* to[kOwn];
  for (size_t f = 0; f < kOwn; ++f) to[f] = out + (f + 1) * places;
  const std::vector<uint8_t> zeros(width);
  with_width(width, [&](auto copy) {
    for (size_t s = 0; s < shape.d / shape.sample(); s += fit.stride) {
      const uint8_t* plane = levels + s * shape.sample() + channel * height * width;
      for (size_t y = fit.rows.first; y < fit.rows.last; y += fit.thin) {
        const uint8_t *row = plane + y * width, *above = y ? row - width : zeros.data();
        if (fit.thin == 1 && y && above > levels) {  // whole rows, each with the element before it
          copy(to[0], row - 1);
          copy(to[1], above);
          copy(to[2], above - 1);
          copy(to[3], above + 1);
          copy(to[4], row);
          to[0][0] = to[2][0] = to[3][width - 1] = 0;
          for (auto& feature : to) feature += width;
          continue;
        }
        for (size_t x = 0; x < width; x += fit.thin) {
          *to[0]++ = x ? row[x - 1] : 0;
          *to[1]++ = above[x];
          *to[2]++ = x ? above[x - 1] : 0;
          *to[3]++ = x + 1 < width ? above[x + 1] : 0;
          *to[4]++ = row[x];
        }
      }
    }
  });
  if (fit.coarse)
    for (size_t i = places; i < (kOwn + 1) * places; ++i) out[i] = uint8_t(out[i] >> fit.coarse);
}

// n equations, the right side last; their solution is there in the end.
void solve(double (*a)[kMostFeatures + 1], size_t n) {
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

int8_t rounded(double weight) { return int8_t(std::min(127.0, std::max(-127.0, std::nearbyint(weight * kUnit)))); }

using Matrix = std::vector<double>;  // channels x channels

// Which earlier channels explain most of what the neighbours leave of a channel, one after the other.
void choose(size_t c, size_t channels, size_t parents, double places, const double* solved, const Matrix* cross,
            const double* energy, size_t* chosen) {
  const Matrix &sum = cross[0], &levels = cross[kOwn];
  std::vector<double> rest(c + 1);
  std::vector<char> allowed(c + 1);
  for (size_t p = 0; p <= c; ++p) {
    double explained = 0;
    for (size_t i = 0; i < kOwn; ++i) explained += solved[i] * cross[i][c * channels + p];
    rest[p] = levels[c * channels + p] - explained;
    allowed[p] = p < c && double(c - p) <= kFarthest;
  }
  for (size_t j = 0; j < parents; ++j) {
    size_t best = 0;
    double most = -2.0;
    for (size_t p = 0; p <= c; ++p) {
      const double worth = allowed[p] ? rest[p] * rest[p] / energy[p] : -1.0;
      if (worth > most) {
        most = worth;
        best = p;
      }
    }
    chosen[j] = best;
    allowed[best] = 0;
    const double share = rest[best] / energy[best];
    for (size_t p = 0; p <= c; ++p) {
      const double centred = levels[best * channels + p] - sum[c * channels + best] * sum[c * channels + p] / places;
      rest[p] = rest[p] - share * centred;
    }
  }
}

}  // namespace

void ems_fit_weights(const uint8_t* levels, const EmsShape& shape, const EmsFit& fit, size_t parents, int8_t* weights,
             uint8_t* distance, int8_t* parent, int threads) {
  const size_t channels = shape.channels, places = fit.places, rows = kOwn + 1;
  const std::unique_ptr<uint8_t[]> features(new uint8_t[channels * rows * places]);
  std::vector<double> moments(channels * rows * rows);
  const auto of = [&](size_t c, size_t f) { return features.get() + (c * rows + f) * places; };
  const auto& kernel = ems_kernels();
  parallel(threads, channels, [&](size_t c) {
    features_of(levels, shape, fit, c, of(c, 0));
    double* m = moments.data() + c * rows * rows;
    for (size_t f = 0; f < rows; ++f) {
      uint32_t found[kOwn];
      kernel.dots5(of(c, 1), of(c, f), places, found);
      for (size_t g = 0; g < kOwn; ++g) m[f * rows + g + 1] = m[(g + 1) * rows + f] = found[g];
    }
    m[0] = double(places);
  });
  const auto system = [&](const double* m, double (*a)[kMostFeatures + 1], size_t n) {
    for (size_t i = 0; i < kOwn; ++i) {
      for (size_t j = 0; j < kOwn; ++j) a[i][j] = m[i * rows + j];
      a[i][n] = m[i * rows + kOwn];
    }
  };
  if (!fit.own) {
    for (size_t c = 1; c < channels; ++c)
      for (size_t i = 0; i < rows * rows; ++i) moments[i] += moments[c * rows * rows + i];
    double a[kMostFeatures][kMostFeatures + 1];
    system(moments.data(), a, kOwn);
    solve(a, kOwn);
    for (size_t i = 0; i < kOwn; ++i) weights[i] = rounded(a[i][kOwn]);
    return;
  }
  // The sum of feature i of channel c times the level of channel p, at (c, p), for earlier channels p.
  Matrix cross[kOwn + 1];
  for (auto& matrix : cross) matrix.resize(channels * channels);
  parallel(threads, channels, [&](size_t i) {
    const size_t c = channels - 1 - i;  // the longest first
    for (size_t p = 0; p <= c; ++p) {
      uint32_t found[kOwn];
      kernel.dots5(of(c, 1), of(p, kOwn), places, found);
      for (size_t i = 0; i < kOwn; ++i) cross[i + 1][c * channels + p] = found[i];
      cross[kOwn][p * channels + c] = found[kOwn - 1];
      cross[0][c * channels + p] = moments[p * rows * rows + kOwn];
    }
  });
  std::vector<double> energy(channels);
  for (size_t c = 0; c < channels; ++c) {
    const double level = cross[0][c * channels + c];
    energy[c] = cross[kOwn][c * channels + c] - level * level / double(places) + 1e-9;
  }
  parallel(threads, channels, [&](size_t c) {
    double a[kMostFeatures][kMostFeatures + 1], solved[kOwn];
    const double* m = moments.data() + c * rows * rows;
    system(m, a, kOwn);
    solve(a, kOwn);
    for (size_t i = 0; i < kOwn; ++i) solved[i] = a[i][kOwn];
    size_t chosen[4] = {};
    choose(c, channels, parents, double(places), solved, cross, energy.data(), chosen);
    const size_t n = kOwn + parents;
    system(m, a, n);
    for (size_t j = 0; j < parents; ++j) {
      const size_t p = chosen[j];
      for (size_t i = 0; i < kOwn; ++i) a[kOwn + j][i] = a[i][kOwn + j] = cross[i][c * channels + p];
      a[kOwn + j][n] = cross[kOwn][c * channels + p];
      for (size_t i = 0; i < parents; ++i) a[kOwn + i][kOwn + j] = cross[kOwn][chosen[i] * channels + p];
      // A channel without candidates left gets one that explains nothing.
      if (p >= c)
        for (size_t i = 0; i <= n; ++i) a[kOwn + j][i] = a[std::min(i, n - 1)][kOwn + j] = 0;
    }
    solve(a, n);
    for (size_t i = 0; i < kOwn; ++i) weights[c * kOwn + i] = rounded(a[i][n]);
    for (size_t j = 0; j < parents; ++j) {
      const int8_t weight = chosen[j] < c ? rounded(a[kOwn + j][n]) : int8_t(0);
      const bool there = weight != 0 && double(c - chosen[j]) <= kFarthest;
      distance[c * parents + j] = there ? uint8_t(c - chosen[j]) : 0;
      parent[c * parents + j] = there ? weight : 0;
    }
  });
}

}  // namespace cutlayer
