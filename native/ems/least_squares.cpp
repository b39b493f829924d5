// Least-squares fit of the context model, in the same arithmetic, operation by operation, as entropy/least_squares.py.
#include <cmath>
#include <cstring>
#include <memory>

#include "ems/padded_planes.hpp"

namespace cutlayer {
namespace {

constexpr size_t kOwnFeatures = 1 + kNeighbours;   // the constant and the neighbours
constexpr size_t kMaxFeatures = kOwnFeatures + 4;  // and the parents
constexpr double kWeightUnit = 32, kMaxParentDistance = 255;

// Every `thin`-th of n bytes. The usual distances are constants, for which the compiler has vector instructions.
template <size_t Thin>
uint8_t* every_of(const uint8_t* from, size_t n, uint8_t* to) {
  const size_t many = (n + Thin - 1) / Thin;
  for (size_t i = 0; i < many; ++i) to[i] = from[i * Thin];
  return to + many;
}
uint8_t* every(const uint8_t* from, size_t n, size_t thin, uint8_t* to) {
  if (thin == 1) return every_of<1>(from, n, to);
  if (thin == 2) return every_of<2>(from, n, to);
  if (thin == 4) return every_of<4>(from, n, to);
  for (size_t i = 0; i < n; i += thin) *to++ = from[i];
  return to;
}

// The features of one channel at the sampled positions, feature by feature: constant, neighbours, the level itself.
void features_of(const uint8_t* levels, const SectionShape& shape, const FitSample& fit, size_t channel, uint8_t* out) {
  const size_t positions = fit.positions, height = shape.height, width = shape.width;
  std::memset(out, 1, positions);
  uint8_t* to[kOwnFeatures];
  for (size_t f = 0; f < kOwnFeatures; ++f) to[f] = out + (f + 1) * positions;
  const std::vector<uint8_t> zeros(width);
  std::vector<uint8_t> here(width + 2), upper(width + 2);  // rows between two zeros
  with_width(width, [&](auto copy) {
    for (size_t s = 0; s < shape.d / shape.sample(); s += fit.stride) {
      const uint8_t* plane = levels + s * shape.sample() + channel * height * width;
      for (size_t y = fit.rows.first; y < fit.rows.last; y += fit.thin) {
        const uint8_t *row = plane + y * width, *above = y ? row - width : zeros.data();
        if (fit.thin == 1 && y && above > levels) {  // copy whole rows; the first and last column are corrected after
          copy(to[0], row - 1);
          copy(to[1], above);
          copy(to[2], above - 1);
          copy(to[3], above + 1);
          copy(to[4], row);
          to[0][0] = to[2][0] = to[3][width - 1] = 0;
          for (auto& feature : to) feature += width;
          continue;
        }
        copy(here.data() + 1, row);
        copy(upper.data() + 1, above);
        const uint8_t* from[kOwnFeatures] = {here.data(), upper.data() + 1, upper.data(), upper.data() + 2,
                                             here.data() + 1};
        for (size_t f = 0; f < kOwnFeatures; ++f) to[f] = every(from[f], width, fit.thin, to[f]);
      }
    }
  });
  if (fit.level_shift)
    for (size_t i = positions; i < (kOwnFeatures + 1) * positions; ++i) out[i] = uint8_t(out[i] >> fit.level_shift);
}

// Solves n equations by Gauss-Jordan elimination. Column n is the right side, and the solution in the end.
void solve(double (*a)[kMaxFeatures + 1], size_t n) {
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

int8_t rounded(double weight) { return int8_t(std::min(127.0,
                                                       std::max(-127.0, std::nearbyint(weight * kWeightUnit)))); }

using Matrix = std::vector<double>;  // channels x channels

// Greedy selection of parents: the earlier channels that explain most of the residual that the neighbours leave.
void select_parents(size_t c, size_t channels, size_t parents, double positions, const double* solved,
                    const Matrix* cross, const double* energy, size_t* chosen) {
  const Matrix &sum = cross[0], &levels = cross[kOwnFeatures];
  std::vector<double> residual(c + 1);
  std::vector<char> allowed(c + 1);
  for (size_t p = 0; p <= c; ++p) {
    double explained = 0;
    for (size_t i = 0; i < kOwnFeatures; ++i) explained += solved[i] * cross[i][c * channels + p];
    residual[p] = levels[c * channels + p] - explained;
    allowed[p] = p < c && double(c - p) <= kMaxParentDistance;
  }
  for (size_t j = 0; j < parents; ++j) {
    size_t best = 0;
    double most = -2.0;
    for (size_t p = 0; p <= c; ++p) {
      const double worth = allowed[p] ? residual[p] * residual[p] / energy[p] : -1.0;
      if (worth > most) {
        most = worth;
        best = p;
      }
    }
    chosen[j] = best;
    allowed[best] = 0;
    const double share = residual[best] / energy[best];
    for (size_t p = 0; p <= c; ++p) {
      const double centred = levels[best * channels + p] - sum[c * channels + best] * sum[c * channels + p] / positions;
      residual[p] = residual[p] - share * centred;
    }
  }
}

}  // namespace

void ems_fit_weights(const uint8_t* levels, const SectionShape& shape, const FitSample& fit, size_t parents,
                     int8_t* weights, uint8_t* distance, int8_t* parent, int threads) {
  const size_t channels = shape.channels, positions = fit.positions, rows = kOwnFeatures + 1;
  const std::unique_ptr<uint8_t[]> features(new uint8_t[channels * rows * positions]);
  std::vector<double> moments(channels * rows * rows);
  const auto of = [&](size_t c, size_t f) { return features.get() + (c * rows + f) * positions; };
  const auto& kernel = ems_kernels();
  parallel(threads, channels, [&](size_t c) {
    features_of(levels, shape, fit, c, of(c, 0));
    double* m = moments.data() + c * rows * rows;
    for (size_t f = 0; f < rows; ++f) {
      uint32_t found[kOwnFeatures];
      kernel.dots5(of(c, 1), of(c, f), positions, found);
      for (size_t g = 0; g < kOwnFeatures; ++g) m[f * rows + g + 1] = m[(g + 1) * rows + f] = found[g];
    }
    m[0] = double(positions);
  });
  const auto system = [&](const double* m, double (*a)[kMaxFeatures + 1], size_t n) {
    for (size_t i = 0; i < kOwnFeatures; ++i) {
      for (size_t j = 0; j < kOwnFeatures; ++j) a[i][j] = m[i * rows + j];
      a[i][n] = m[i * rows + kOwnFeatures];
    }
  };
  if (!fit.per_channel) {
    for (size_t c = 1; c < channels; ++c)
      for (size_t i = 0; i < rows * rows; ++i) moments[i] += moments[c * rows * rows + i];
    double a[kMaxFeatures][kMaxFeatures + 1];
    system(moments.data(), a, kOwnFeatures);
    solve(a, kOwnFeatures);
    for (size_t i = 0; i < kOwnFeatures; ++i) weights[i] = rounded(a[i][kOwnFeatures]);
    return;
  }
  // cross[i] at (c, p): the dot product of feature i of channel c with the level of an earlier channel p.
  Matrix cross[kOwnFeatures + 1];
  for (auto& matrix : cross) matrix.resize(channels * channels);
  parallel(threads, channels, [&](size_t i) {
    const size_t c = channels - 1 - i;  // the channels with the most work first
    for (size_t p = 0; p <= c; ++p) {
      uint32_t found[kOwnFeatures];
      kernel.dots5(of(c, 1), of(p, kOwnFeatures), positions, found);
      for (size_t i = 0; i < kOwnFeatures; ++i) cross[i + 1][c * channels + p] = found[i];
      cross[kOwnFeatures][p * channels + c] = found[kOwnFeatures - 1];
      cross[0][c * channels + p] = moments[p * rows * rows + kOwnFeatures];
    }
  });
  std::vector<double> energy(channels);
  for (size_t c = 0; c < channels; ++c) {
    const double level = cross[0][c * channels + c];
    energy[c] = cross[kOwnFeatures][c * channels + c] - level * level / double(positions) + 1e-9;
  }
  parallel(threads, channels, [&](size_t c) {
    double a[kMaxFeatures][kMaxFeatures + 1], solved[kOwnFeatures];
    const double* m = moments.data() + c * rows * rows;
    system(m, a, kOwnFeatures);
    solve(a, kOwnFeatures);
    for (size_t i = 0; i < kOwnFeatures; ++i) solved[i] = a[i][kOwnFeatures];
    size_t chosen[4] = {};
    select_parents(c, channels, parents, double(positions), solved, cross, energy.data(), chosen);
    const size_t n = kOwnFeatures + parents;
    system(m, a, n);
    for (size_t j = 0; j < parents; ++j) {
      const size_t p = chosen[j];
      for (size_t i = 0; i < kOwnFeatures; ++i)
        a[kOwnFeatures + j][i] = a[i][kOwnFeatures + j] = cross[i][c * channels + p];
      a[kOwnFeatures + j][n] = cross[kOwnFeatures][c * channels + p];
      for (size_t i = 0; i < parents; ++i)
        a[kOwnFeatures + i][kOwnFeatures + j] = cross[kOwnFeatures][chosen[i] * channels + p];
      // A channel with fewer candidates than parents gets an empty equation instead.
      if (p >= c)
        for (size_t i = 0; i <= n; ++i) a[kOwnFeatures + j][i] = a[std::min(i, n - 1)][kOwnFeatures + j] = 0;
    }
    solve(a, n);
    for (size_t i = 0; i < kOwnFeatures; ++i) weights[c * kOwnFeatures + i] = rounded(a[i][n]);
    for (size_t j = 0; j < parents; ++j) {
      const int8_t weight = chosen[j] < c ? rounded(a[kOwnFeatures + j][n]) : int8_t(0);
      const bool there = weight != 0 && double(c - chosen[j]) <= kMaxParentDistance;
      distance[c * parents + j] = there ? uint8_t(c - chosen[j]) : 0;
      parent[c * parents + j] = there ? weight : 0;
    }
  });
}

}  // namespace cutlayer
