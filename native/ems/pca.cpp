// PCA across channels, in the same arithmetic, operation by operation, as entropy/pca.py.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ems/dct.hpp"
#include "ems/dct_section.hpp"
#include "ems/kernels.hpp"

namespace cutlayer {
namespace {

constexpr size_t kPositions = size_t(1) << 14;  // that a rotation is fitted to
constexpr int kSweeps = 6;
constexpr double kTolerance = 1e-6;
constexpr double kUnit = 32768;
constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: a sum with it has no fraction

using Matrix = std::vector<double>;  // square

// Rotates the axes of all pairs (p, q) of a round, so that the entries a[p][q] become 0.
void rotate_pairs(Matrix& a, Matrix& vectors, size_t n, const std::vector<size_t>& order) {
  const size_t pairs = n / 2;
  std::vector<double> cosine(pairs), sine(pairs);
  for (size_t i = 0; i < pairs; ++i) {
    const size_t p = order[i], q = order[n - 1 - i];
    const double off = a[p * n + q], theta = (a[q * n + q] - a[p * n + p]) / (2 * off);
    double t = (theta < 0 ? -1.0 : 1.0) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
    if (off == 0) t = 0;
    cosine[i] = 1 / std::sqrt(t * t + 1);
    sine[i] = t * cosine[i];
  }
  for (double* rows : {vectors.data(), a.data()})
    for (size_t i = 0; i < pairs; ++i)
      ems_kernels().plane_rotation(rows + order[i] * n, rows + order[n - 1 - i] * n, n, cosine[i], sine[i]);
  for (double* row = a.data(); row < a.data() + n * n; row += n)  // and the columns
    for (size_t i = 0; i < pairs; ++i) {
      double &p = row[order[i]], &q = row[order[n - 1 - i]];
      const double left = p, right = q, c = cosine[i], s = sine[i];
      p = c * left - s * right;
      q = s * left + c * right;
    }
}

// Approximate eigenvectors of a symmetric matrix as rows, by falling eigenvalue: the cyclic Jacobi method.
Matrix eigenvectors(const Matrix& given, size_t n) {
  const size_t even = n + n % 2;  // an odd size gets one empty row, so that every row has a partner
  Matrix work(even * even), vectors(even * even);
  for (size_t i = 0; i < n; ++i) std::copy_n(given.data() + i * n, n, work.data() + i * even);
  for (size_t i = 0; i < even; ++i) vectors[i * even + i] = 1;
  std::vector<size_t> order(even);
  std::iota(order.begin(), order.end(), size_t(0));
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double off = 0, diagonal = 0;
    for (size_t i = 0; i < even; ++i)
      for (size_t j = 0; j < even; ++j) {
        double& largest = i == j ? diagonal : off;
        largest = std::max(largest, std::fabs(work[i * even + j]));
      }
    if (even < 2 || off <= kTolerance * diagonal) break;
    for (size_t round = 0; round + 1 < even; ++round) {
      rotate_pairs(work, vectors, even, order);
      std::rotate(order.begin() + 1, order.end() - 1, order.end());
    }
  }
  std::vector<size_t> rank(n);
  std::iota(rank.begin(), rank.end(), size_t(0));
  std::stable_sort(rank.begin(), rank.end(),
                   [&](size_t i, size_t j) { return work[i * even + i] > work[j * even + j]; });
  Matrix rows(n * n);
  for (size_t i = 0; i < n; ++i) std::copy_n(vectors.data() + rank[i] * even, n, rows.data() + i * n);
  return rows;
}

}  // namespace

std::vector<int16_t> channel_rotation(const float* x, const SectionShape& shape, double largest) {
  const size_t channels = shape.channels, area = shape.height * shape.width, samples = shape.samples();
  // An odd stride takes other columns in every row. (The right neighbour of a row's end is the next row's start.)
  const size_t stride = samples * area / kPositions | 1, last = area - shape.width;
  const double scale = 32767.0 / largest;
  // The elements, and three times the differences from the right and from the lower neighbour: integers below 2^18, whose
  // products are summed exactly in double. Some positions of all channels at a time, so that they stay in the cache.
  constexpr size_t kPart = 64;
  const size_t padded = (channels + 3) / 4 * 4;  // channels beyond the last, and positions beyond the last, are 0
  std::vector<double> features(padded * 3 * kPart);
  Matrix wide(padded * padded), covariance(channels * channels);
  size_t at[kPart], n = 0;
  const auto add = [&] {
    for (size_t c = 0; c < channels; ++c) {
      double* to = features.data() + c * 3 * kPart;
      if (n < kPart) std::fill_n(to, 3 * kPart, 0.0);
      for (size_t k = 0; k < n; ++k) {
        const float* here = x + at[k] + c * area;
        // To the nearest integer, ties to even, without a call.
        const auto rounded = [&](size_t j) { return (double(here[j]) * scale + kRound) - kRound; };
        const double own = rounded(0);
        to[k] = own;
        to[kPart + k] = 3 * (rounded(1) - own);
        to[2 * kPart + k] = 3 * (rounded(shape.width) - own);
      }
    }
    add_products(features.data(), padded, 3 * kPart, wide.data());
    n = 0;
  };
  for (size_t s = 0; s < samples; ++s)
    for (size_t i = 0; i < last; i += stride) {
      at[n++] = s * channels * area + i;
      if (n == kPart) add();
    }
  if (n) add();
  for (size_t i = 0; i < channels; ++i)
    for (size_t j = 0; j <= i; ++j) covariance[j * channels + i] = covariance[i * channels + j] = wide[i * padded + j];
  const Matrix axes = eigenvectors(covariance, channels);
  std::vector<int16_t> found(channels * channels);
  for (size_t i = 0; i < found.size(); ++i)
    found[i] = int16_t(std::min(kUnit - 1, std::max(1 - kUnit, std::nearbyint(axes[i] * kUnit))));
  return found;
}

}  // namespace cutlayer
