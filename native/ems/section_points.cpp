// The reconstruction points of a section, and its squared error: entropy/section_writer.py, operation by operation.
#include <cmath>

#include "ems/section_writer.hpp"

namespace cutlayer {

std::pair<Points, double> SectionWriter::points_of(double step, unsigned n_levels, const uint8_t* levels,
                                                   bool with_error) {
  const Trial& of = task_.trial;
  const size_t kinds = activities(n_levels), bins = kinds * (n_levels + 1);
  std::vector<int64_t> sums(2 * bins);
  int64_t squared = 0;
  ems_level_sums(trial_elements_, levels, of.shape, of.rows, scale(step), n_levels, kinds, sums.data(),
                 with_error ? &squared : nullptr, threads_for(of.shape.d, task_.threads));
  Points points{float(step), kinds, std::vector<int8_t>(kinds * n_levels)};
  int64_t left = squared;
  for (size_t a = 0; a < kinds; ++a)
    for (size_t l = 0; l < n_levels; ++l) {
      const int64_t n = sums[a * (n_levels + 1) + l], total = sums[bins + a * (n_levels + 1) + l];
      // The mean distance from the level's centre, rounded to the nearest integer.
      const int64_t centre = 64 * int64_t(l), top = 2 * (total - n * centre) + n, by = 2 * std::max<int64_t>(n, 1);
      int64_t offset = top >= 0 ? top / by : -((-top + by - 1) / by);
      offset = std::min<int64_t>(std::max<int64_t>(offset, -127), 127);
      if (l == 0 && offset && negative()) offset = 0;  // positive and negative elements cancel
      points.offsets[a * n_levels + l] = int8_t(offset);
      const int64_t y = centre + offset;
      left += y * (n * y - 2 * total);
    }
  const double unit = scale(step);
  return {points, double(left) / (unit * unit) * (double(task_.shape.d) / double(of.counted()))};
}

std::pair<Points, double> SectionWriter::fit_points_at(double step) {
  const Quantized found = quantize_subset(step, trial_elements_, task_.trial.shape.d);
  return points_of(found.step, found.n_levels, found.levels.data(), true);
}

Points SectionWriter::fit_points(const Quantized& quantized) {
  const Trial& of = task_.trial;
  if (!of.where) return points_of(quantized.step, quantized.n_levels, quantized.levels.data(), false).first;
  Buffer<uint8_t> some(of.shape.d);
  ems_gather_rows(quantized.levels.data(), 1, task_.shape, of.where, of.shape.samples(), of.shape.height, some.data(),
                  threads_for(of.shape.d, task_.threads, kThreadedCheap));
  return points_of(quantized.step, quantized.n_levels, some.data(), false).first;
}

double SectionWriter::error(const Quantized& quantized, const Points& points) {
  const unsigned n_levels = quantized.n_levels;
  std::vector<int64_t> table(points.activities * (n_levels + 1), -1);
  for (size_t a = 0; a < points.activities; ++a)
    for (size_t l = 0; l < n_levels; ++l)
      table[a * (n_levels + 1) + l] = 64 * int64_t(l) + points.offsets[a * n_levels + l];
  const double unit = scale(quantized.step);
  return double(ems_squared_error(task_.x, quantized.levels.data(), task_.shape, float(unit), n_levels,
                                  points.activities, table.data(), threads_for(task_.shape.d, task_.threads))) /
         (unit * unit);
}

double SectionWriter::error_of_few(const Quantized& quantized, const Points& points) {
  if (task_.shape.d >= kMinForActivity) return 0;
  const unsigned n_levels = quantized.n_levels;
  const float unit = points.step / 64;
  double sum = 0;
  for (size_t i = 0; i < task_.shape.d; ++i) {
    const unsigned level = quantized.levels.data()[i];
    if (level == n_levels) continue;
    const double off = std::fabs(double(task_.x[i])) - double(float(64 * int(level) + points.offsets[level]) * unit);
    sum += off * off;
  }
  return sum;
}

}  // namespace cutlayer
