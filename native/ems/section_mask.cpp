// The context model of a section, and what its mask costs with it: entropy/section_writer.py, operation by operation.
#include <cmath>

#include "ems/padded_planes.hpp"
#include "ems/section_writer.hpp"

namespace cutlayer {
namespace {

constexpr size_t kMinPerChannel = 3000, kFitElements = size_t(1) << 16;
constexpr size_t kWantedPositions = 1024, kMostFitElements = size_t(1) << 18;
constexpr double kLaneBytes = 3, kMostOverfit = 0.25;
constexpr size_t kMaxFrequencyClasses = 24, kMinClassElements = 160;

size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

// The positions of each channel to which its own weights are fitted.
size_t fit_positions(size_t channels) {
  const size_t wanted = std::max(kWantedPositions, kFitElements / channels);
  return std::max<size_t>(1, std::min(wanted, kMostFitElements / channels));
}

bool weights_per_channel(const SectionShape& shape) {
  return shape.channels > 1 && shape.d >= kMinPerChannel * shape.channels;
}

// Which positions a fit uses: `subsample` in entropy/least_squares.py. False if the section is too small for a fit.
bool fit_sample(const Trial& of, bool per_channel, FitSample& fit) {
  const SectionShape& shape = of.shape;
  const size_t rows = of.rows.last - of.rows.first, whole = shape.d / shape.sample(), area = rows * shape.width;
  if (whole == 0 || shape.d < 64) return false;
  const size_t wanted = per_channel ? fit_positions(shape.channels) : kFitElements;
  if (rows != shape.height) {
    fit.stride = std::max<size_t>(1, whole * area / wanted);
    fit.thin = std::max<size_t>(1, area / (4 * wanted));
  } else {
    fit.stride = std::max<size_t>(1, whole * area / (4 * wanted));
    const double crowd = double(ceil_div(whole, fit.stride) * area) / double(wanted);
    volatile double half = 0.5;  // pow as Python calls it, never sqrt
    fit.thin = std::max<size_t>(1, size_t(std::ceil(std::pow(crowd, half))));
  }
  fit.positions = ceil_div(whole, fit.stride) * ceil_div(rows, fit.thin) * ceil_div(shape.width, fit.thin);
  fit.rows = of.rows;
  fit.per_channel = per_channel;
  return true;
}

}  // namespace

bool SectionWriter::has_many_channels() const {
  return task_.shape.channels > 64 && weights_per_channel(task_.shape);
}

OwnModel SectionWriter::fit_to(unsigned n_levels, const uint8_t* levels, const Trial& of) {
  const SectionShape& shape = task_.shape;
  const bool per_channel = weights_per_channel(shape);
  OwnModel model;
  FitSample fit;
  if (!fit_sample(of, per_channel, fit)) {
    model.weights = {0, 16, 16, 0, 0};
    return model;
  }
  if (per_channel) {
    model.rows = shape.channels;
    model.parents = std::min<size_t>(4, shape.channels - 1);
  }
  model.weights.resize(5 * model.rows);
  model.distance.resize(model.rows * model.parents);
  model.parent.resize(model.rows * model.parents);
  fit.level_shift = model.view(n_levels).level_shift;
  ems_fit_weights(levels, of.shape, fit, model.parents, model.weights.data(), model.distance.data(),
                  model.parent.data(), threads_for(shape.channels * fit.positions, task_.threads));
  return model;
}

OwnModel SectionWriter::fit_model(double step, const Quantized* known) {
  if (known) return fit_to(known->n_levels, known->levels.data(), task_.trial);
  const Quantized found = quantize_subset(step, trial_elements_, task_.trial.shape.d);
  return fit_to(found.n_levels, found.levels.data(), task_.trial);
}

const OwnModel& SectionWriter::model_for(double step, const Quantized* known) {
  if (fitted_at_ == 0 || std::fabs(std::log(step / fitted_at_)) > model_range) {
    fitted_ = fit_model(step, known);
    fitted_at_ = step;
    tried_.bytes = 0;  // it was made with another model
  }
  return fitted_;
}

double SectionWriter::estimate_bytes(double step) {
  Quantized levels = quantize_subset(step, trial_elements_, task_.trial.shape.d);
  const OwnModel& model = model_for(step, &levels);
  Mask mask = make_mask(std::move(levels), task_.trial, &model);
  const double bytes = mask.bytes;
  if (!task_.trial.where) tried_ = std::move(mask);
  return bytes;
}

Mask SectionWriter::mask_at(double step, const OwnModel* model, unsigned n_levels) {
  // Where the trial rows are all rows, the mask may be there already: levels differ only if elements tie with the
  // smallest top value.
  if (!n_levels && model == &fitted_ && tried_.bytes > 0 && tried_.quantized.step == clamped(step) &&
      tried_.marks_are_tops) {
    Mask found = std::move(tried_);
    tried_ = Mask();
    return found;
  }
  return mask_of(quantize(step, n_levels), model);
}

Mask SectionWriter::mask_of(Quantized quantized, const OwnModel* model) {
  return make_mask(std::move(quantized), all_, model);
}

Mask SectionWriter::make_mask(Quantized quantized, const Trial& of, const OwnModel* model) {
  const SectionShape& shape = task_.shape;
  const unsigned n_levels = quantized.n_levels;
  Mask mask;
  mask.model = model ? *model : fit_to(n_levels, quantized.levels.data(), of);
  const size_t symbols = n_levels + 1;
  std::vector<int64_t> histogram(kPredictions * symbols);
  const bool whole = !of.where;
  if (of.rows.last - of.rows.first == of.shape.height) mask.contexts = Buffer<uint8_t>(of.shape.d);
  ems_contexts(quantized.levels.data(), of.shape, of.rows, mask.model.view(n_levels), n_levels, mask.contexts.data(),
               histogram.data(), threads_for(of.shape.d, task_.threads));
  int64_t signs = 0, marks = 0;
  for (size_t p = 0; p < kPredictions; ++p) {
    const int64_t* row = histogram.data() + p * symbols;
    for (size_t l = 1; task_.is_signed && l < n_levels; ++l) signs += row[l];
    marks += row[n_levels];
  }
  mask.marks_are_tops = marks == int64_t(count);
  const double share = double(shape.d) / double(of.counted());
  // Scaled up to the whole section, so that the trial rows get as many classes as the section will.
  const int64_t times = int64_t(std::nearbyint(share));
  if (times > 1)
    for (auto& n : histogram) n *= times;
  OwnTables& tables = mask.tables;
  tables.symbols = symbols;
  tables.frequencies.resize(kMaxFrequencyClasses * symbols);
  int64_t cost = 0;
  tables.classes = ems_frequency_tables(histogram.data(), symbols, kMaxFrequencyClasses, kMinClassElements,
                                        task_.cost_of, tables.starts, tables.frequencies.data(), cost);
  tables.frequencies.resize(tables.classes * symbols);
  tables.number_classes();
  double bits = double(cost) / 65536 / double(times) + double(signs);
  if (!whole) {
    const double overfit = overfit_bits_ * double(mask.model.weights.size() + mask.model.distance.size());
    bits += std::min(overfit, kMostOverfit * bits) + double(tables.frequencies.size());
  }
  // The header: a frequency takes one byte or two, all else is small.
  const size_t header = 40 + top_stream.size() + activities(n_levels) * n_levels + 3 * shape.blocks() +
                        model_size(mask.model) + tables.classes * (1 + 3 * n_levels / 2);
  mask.bytes = bits * share / 8 + kLaneBytes * double(shape.lanes()) + double(header);
  mask.quantized = std::move(quantized);
  return mask;
}

}  // namespace cutlayer
