#include "ems/rate_control.hpp"

#include <cmath>

namespace cutlayer {
namespace {

constexpr int kTries = 6;
constexpr int kRefinements = 2;       // passes over all elements, at most, once the error bound is met
constexpr double kTolerance = 0.006;  // a target counts as met within this share of it
constexpr double kLowRate = 0.4;      // bits an element
constexpr double kSamePoints = 0.05;  // steps within this share of each other use the same reconstruction points
constexpr double kBudgetUsed = 0.9;   // a section that uses this share of its budget is good enough
constexpr size_t kMaxTopShare = 64;

struct Found {
  double at, slope;
};

// Where a falling function comes closest to the target without exceeding it, and its slope there: secant steps, and
// bisection where the function jumps.
template <class F>
Found secant_search(F value, double target, double low, double high, double at, double slope) {
  double best = high, last_at = 0, last_found = 0;
  bool any = false;
  for (int i = 0; i < 3 * kTries; ++i) {
    const double found = value(at);
    if (found <= target && (!any || at < best)) {
      best = at;
      any = true;
    }
    if ((target - kTolerance <= found && found <= target) || high - low < 1e-3) break;
    if (found > target) low = std::max(low, at);
    else high = std::min(high, at);
    if (i > 0 && at != last_at) {
      const double secant = (found - last_found) / (at - last_at);
      slope = secant < -0.05 ? secant : slope;
    }
    last_at = at;
    last_found = found;
    const double guess = at + (target - kTolerance / 2 - found) / slope;
    at = low < guess && guess < high && i < kTries ? guess : (low + high) / 2;
  }
  return {any ? best : high, slope};
}

Encoded encode(SectionWriter& writer, const Mask& mask) { return writer.section(mask, writer.fit_points(mask.quantized)); }

// The section with one level: zeros and top values.
Encoded smallest(SectionWriter& writer) {
  return encode(writer, writer.mask_at(writer.topmin > 0 ? 2 * writer.topmin : 1.0, nullptr));
}

// The logarithms of the smallest and the largest useful step: those of the most levels, and of one.
double lowest_step(const SectionWriter& writer) { return std::log(writer.topmin / (kMaxLevels - 0.5)); }
double highest_step(const SectionWriter& writer) { return std::log(writer.topmin * 2); }

// The step whose estimated size meets the budget, and d log(size) / d log(step) there.
Found step_for_bytes(SectionWriter& writer, double budget) {
  const auto size = [&](double at) { return std::log(writer.estimate_bytes(std::exp(at))); };
  const double known = std::log(writer.first_step), low = lowest_step(writer), high = highest_step(writer);
  const double guess = known + (size(known) - std::log(budget)) / 0.8;
  const Found found = secant_search(size, std::log(budget), low, high, std::min(std::max(guess, low), high), -0.8);
  return {std::exp(found.at), found.slope};
}

// A section of elements within a budget. The number of top values is adjusted to the budget.
Encoded fill_budget(const SectionTask& task, const Selection& top, size_t row, int64_t budget) {
  auto writer = std::make_unique<SectionWriter>(task, top, row);
  Encoded best;
  for (;;) {
    Encoded encoded = within_bytes(*writer, budget);
    uint64_t count = writer->count;
    if (int64_t(encoded.bytes.size()) <= budget && (!best.good || encoded.bytes.size() > best.bytes.size())) {
      best = std::move(encoded);
      // Bytes are left over at the most levels: spend them on more top values.
      const bool spare = best.levels == kMaxLevels && double(best.bytes.size()) < kBudgetUsed * double(budget);
      if (!spare || count > task.shape.d / kMaxTopShare) return best;
      count *= 4;
    } else if (best.good || count == 1) {
      return best.good ? std::move(best) : std::move(encoded);
    } else {
      count = std::max<uint64_t>(1, count / 4);
    }
    const size_t d = task.shape.d;
    writer = std::make_unique<SectionWriter>(task, select_top(task.x, {1, d, count}, threads_for(d, task.threads,
        kThreadedCheap)), 0);
  }
}

// The squared error that the mask may have, after the conversion of top values has taken its part.
double error_bound(const SectionTask& task, double error, double energy, uint64_t count) {
  const double conversion[3] = {0.0, 0x1p-22, 0x1p-18};
  return (error - conversion[int(task.values)]) * energy - double(count) * (task.values == Values::f16 ? 0x1p-50 : 0.0);
}

}  // namespace

Encoded within_bytes(SectionWriter& writer, int64_t budget) {
  if (writer.topmin == 0 || budget <= 0) return smallest(writer);
  const double bytes = double(budget);
  if (writer.has_many_channels() && bytes < kLowRate * double(writer.elements()) / 8) {
    // A channel chooses its parents among many. Most levels are zero, so a fit to them sees too little to choose by: one
    // fit at a small step serves all others.
    writer.first_step = std::min(writer.first_step, writer.topmin / 6);
    writer.model_range = HUGE_VAL;
  }
  const Found found = step_for_bytes(writer, bytes * (1 - 1.5 * kTolerance));
  double step = found.at;
  const OwnModel& model = writer.model_for(step);
  const double wanted = bytes * (1 - kTolerance);
  Mask fitting;
  bool fits = false;
  double large_step = 0, large_bytes = 0;  // of a mask that does not fit
  for (int i = 0; i < kTries; ++i) {
    Mask mask = writer.mask_at(step, &model);
    const double size = mask.bytes;
    const unsigned n_levels = mask.quantized.n_levels;
    if (size > bytes) {
      large_step = mask.quantized.step;
      large_bytes = size;
    } else if (fits && size <= fitting.bytes) {
      break;
    } else {
      fitting = std::move(mask);
      fits = true;
    }
    if (fits && (fitting.bytes >= bytes * (1 - 4 * kTolerance) || fitting.quantized.n_levels == kMaxLevels)) break;
    if (fits && large_bytes > 0) {
      // In between: log size is nearly linear in log step.
      const double part = std::log(fitting.bytes / wanted) / std::log(fitting.bytes / large_bytes);
      step = fitting.quantized.step * std::pow(large_step / fitting.quantized.step, part);
    } else if (size > bytes && n_levels == 1) {
      break;
    } else {
      // The slope is that of the trial rows, which are not quite like the whole section.
      step *= std::pow(std::max(0.5, size / wanted), 1 / std::min(std::max(-found.slope, 0.4), 2.5));
    }
  }
  if (fits) {
    Encoded encoded = encode(writer, fitting);
    if (int64_t(encoded.bytes.size()) <= budget) return encoded;
    // The estimate of the size was too low.
    encoded = encode(writer, writer.mask_at(1.05 * fitting.quantized.step, &model));
    if (int64_t(encoded.bytes.size()) <= budget) return encoded;
  }
  return smallest(writer);
}

Encoded within_error(SectionWriter& writer, double bound) {
  if (writer.topmin == 0) return smallest(writer);
  if (bound <= 0) return {};
  // The search is over u = -log(step), so that the error falls.
  const auto value = [&](double u) { return std::log(std::max(1e-300, writer.estimate_error(std::exp(-u)))); };
  const Found found = secant_search(value, std::log(bound * (1 - kTolerance)), -highest_step(writer),
                                    -lowest_step(writer), -std::log(writer.first_step), -2.0);
  double step = std::exp(-found.at), slope = found.slope, last_step = 0, last_error = 0, best_error = -1;
  Quantized best;
  Points points, best_points;
  bool met = false;
  double fitted_at = 0;  // the step to which the points were fitted
  for (int i = 0; i < 4 * kTries; ++i) {
    Quantized levels = writer.quantize(step);
    const unsigned n_levels = levels.n_levels;
    // Relative to the step, reconstruction points hardly depend on it.
    if (fitted_at > 0 && std::fabs(step / fitted_at - 1) < kSamePoints &&
        points.offsets.size() == points.activities * n_levels) {
      points.step = float(levels.step);
    } else {
      points = writer.fit_points(levels);
      fitted_at = step;
    }
    const double error = writer.error(levels, points);
    // A margin for the precision of 1/64 of a step, with which the error is measured. The rounding errors of few elements
    // do not average out.
    const bool fits = error * 1.001 <= bound && writer.error_of_few(levels, points) <= bound;
    if (fits && error > best_error) {
      best = std::move(levels);
      best_points = points;
      best_error = error;
      met = true;
      if (error >= (1 - 3 * kTolerance) * bound) break;
    }
    if (!fits && n_levels == kMaxLevels) break;
    if (met && i >= kRefinements) break;
    double factor = 2.0;
    if (error > 0) {
      // The trial rows gave only an estimate. Two errors of the whole section give the slope.
      const double at = std::log(step), lost = std::log(error);
      if (i && std::fabs(at - last_step) > 1e-4) slope = -(lost - last_error) / (at - last_step);
      last_step = at;
      last_error = lost;
      factor = std::pow((1 - 1.5 * kTolerance) * bound / error, 1 / std::min(std::max(-slope, 0.5), 2.0));
    }
    step *= fits ? factor : std::min(0.998, factor);
  }
  if (!met) return {};
  const OwnModel model = writer.fit_model(best.step);
  return writer.section(writer.mask_of(std::move(best), &model), best_points);
}

Encoded encode_section(const SectionTask& task, const Selection& top, size_t row, const Target& target) {
  if (target.budget >= 0) return fill_budget(task, top, row, target.budget);
  auto writer = std::make_unique<SectionWriter>(task, top, row);
  const size_t d = task.shape.d;
  if (target.levels) {
    if (target.rounding != 2) return writer->section(writer->mask_of(writer->evenly(target.levels, target.rounding == 1),
                                                                     nullptr), Points());
    const double step = writer->topmin > 0 ? writer->topmin / (target.levels - 0.5) : 1.0;
    return encode(*writer, writer->mask_at(step, nullptr, target.levels));
  }
  const double energy = ems_energy(task.x, d, threads_for(d, task.threads, kThreadedCheap));
  if (target.step > 0) {
    if (writer->topmin == 0) return smallest(*writer);
    const double step = target.step * std::sqrt(energy / double(d));
    return encode(*writer, writer->mask_at(std::max(step, writer->topmin / (kMaxLevels - 0.5)), nullptr));
  }
  for (;;) {
    Encoded found = within_error(*writer, error_bound(task, target.error, energy, writer->count));
    if (found.good || writer->count == d) return found;
    // Even the most levels are too coarse: make more elements top values.
    const uint64_t count = std::min<uint64_t>(d, 4 * writer->count);
    writer = std::make_unique<SectionWriter>(task, select_top(task.x, {1, d, count}, threads_for(d, task.threads,
        kThreadedCheap)), 0);
  }
}

}  // namespace cutlayer
