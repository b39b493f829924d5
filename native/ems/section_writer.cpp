#include "ems/section_writer.hpp"

#include <cmath>
#include <cstring>

#include "common/float16.hpp"
#include "ems/padded_planes.hpp"

namespace cutlayer {
namespace {

constexpr double kMinStep = 0x1p-120, kMaxStep = 0x1p119;  // so that 1/64 of a step, and 127 steps, are float32
constexpr double kModelRange = 0.4;  // |log(step / other step)| up to which both use the same context model
constexpr size_t kMinForActivity = size_t(1) << 15, kMaxForActivity = 16;
constexpr size_t kMinPerChannel = 3000, kFitElements = size_t(1) << 16;
constexpr double kLaneBytes = 3;
constexpr size_t kMaxFrequencyClasses = 24, kMinClassElements = 160;

double clamped(double step) { return std::min(std::max(step, kMinStep), kMaxStep); }

// The number with these bits.
double number_of(uint64_t bits, Values kind) {
  if (kind == Values::f16) return double(from_half(uint16_t(bits)));
  return double(float_of(kind == Values::f32 ? uint32_t(bits) : uint32_t(bits) << 16));
}

size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

// Which positions a fit uses: `subsample` in entropy/least_squares.py. False if the section is too small for a fit.
bool fit_sample(const Trial& of, bool per_channel, FitSample& fit) {
  const SectionShape& shape = of.shape;
  const size_t rows = of.rows.last - of.rows.first, whole = shape.d / shape.sample(), area = rows * shape.width;
  if (whole == 0 || shape.d < 64) return false;
  const size_t wanted = std::max<size_t>(1, kFitElements / (per_channel ? shape.channels : 1));
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

SectionWriter::SectionWriter(const SectionTask& task, const Selection& top, size_t row)
    : count(top.shape.k), task_(task), all_{task.shape, {0, task.shape.height}, nullptr} {
  const SectionShape& shape = task_.shape;
  const int threads = threads_for(shape.d, task_.threads);
  std::vector<int64_t> raw(count);
  positions_.resize(count);
  ems_top_values(task_.x, top, row, task_.values, raw.data(), positions_.data(), threads);
  const unsigned sign_bit = task_.values == Values::f32 ? 31 : 15;
  const int64_t magnitude = (int64_t(1) << sign_bit) - 1;
  int64_t low = raw[0] & magnitude, high = low;
  for (int64_t v : raw) {
    low = std::min(low, v & magnitude);
    high = std::max(high, v & magnitude);
  }
  low_ = uint64_t(low);
  width_ = bit_length(unsigned(high - low));
  magnitudes_.reserve(count);
  for (int64_t& v : raw) {
    magnitudes_.push_back(float(number_of(uint64_t(v & magnitude), task_.values)));
    const int64_t code = (v & magnitude) - low;
    v = task_.is_signed ? code << 1 | v >> sign_bit : code;
  }
  const unsigned width = width_ + task_.is_signed;
  if (width) top_stream = ems_pack_bits(raw.data(), count, width);
  topmin = number_of(low_, task_.values);
  first_step = topmin / 3;
  threshold_ = top.topmin[row];
  trial_elements_ = task_.x;
  if (task_.trial.where) {
    const SectionShape& trial = task_.trial.shape;
    gathered_ = Buffer<float>(trial.d);
    ems_gather_rows(reinterpret_cast<const uint8_t*>(task_.x), 4, shape, task_.trial.where, trial.samples(), trial.height,
                    reinterpret_cast<uint8_t*>(gathered_.data()), threads_for(trial.d, task_.threads, kThreadedCheap));
    trial_elements_ = gathered_.data();
  }
}

bool SectionWriter::negative() {
  if (negative_ < 0) {
    negative_ = 0;
    for (size_t i = 0; task_.is_signed && i < task_.shape.d && !negative_; ++i) negative_ = task_.x[i] < 0;
  }
  return negative_;
}

unsigned SectionWriter::levels_up_to_topmin(double step) const {
  const double units = std::nearbyint(std::min(16383.0, double(float(topmin) * scale(step))));
  if (units < 38) return 1;
  return std::min(kMaxLevels, 1 + std::max(1u, (unsigned(units) + 64 - 35) / 64));
}

size_t SectionWriter::activities(unsigned n_levels) const {
  return task_.shape.d >= kMinForActivity && n_levels > 1 && n_levels <= kMaxForActivity ? kActivities : 1;
}

Quantized SectionWriter::quantize_subset(double step, const float* elements, size_t n) const {
  Quantized found;
  found.step = clamped(step);
  found.n_levels = levels_up_to_topmin(found.step);
  found.levels = Buffer<uint8_t>(n);
  ems_quantize(elements, n, scale(found.step), found.n_levels, threshold_, found.levels.data(),
               threads_for(n, task_.threads, kThreadedCheap));
  return found;
}

void SectionWriter::mark_tops(uint8_t* levels, unsigned n_levels) const {
  for (int64_t at : positions_) levels[at] = uint8_t(n_levels);
}

Quantized SectionWriter::quantize(double step, unsigned n_levels) {
  const size_t d = task_.shape.d;
  Quantized found;
  found.step = clamped(step);
  found.n_levels = n_levels ? n_levels : levels_up_to_topmin(found.step);
  found.levels = Buffer<uint8_t>(d);
  ems_quantize(task_.x, d, scale(found.step), found.n_levels, HUGE_VALF, found.levels.data(),
               threads_for(d, task_.threads, kThreadedCheap));
  mark_tops(found.levels.data(), found.n_levels);
  return found;
}

Quantized SectionWriter::evenly(unsigned n_levels, bool nearest) {
  Quantized found;
  found.n_levels = n_levels;
  found.levels = Buffer<uint8_t>(task_.shape.d);
  ems_quantize_evenly(task_.x, task_.shape.d, topmin, n_levels, nearest, found.levels.data(),
                      threads_for(task_.shape.d, task_.threads));
  mark_tops(found.levels.data(), n_levels);
  return found;
}

OwnModel SectionWriter::fit_to(unsigned n_levels, const uint8_t* levels, const Trial& of) {
  const SectionShape& shape = task_.shape;
  const bool per_channel = shape.channels > 1 && shape.d >= kMinPerChannel * shape.channels;
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
  if (fitted_at_ == 0 || std::fabs(std::log(step / fitted_at_)) > kModelRange) {
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
  if (!whole)
    bits += overfit_bits_ * double(mask.model.weights.size() + mask.model.distance.size()) +
            double(tables.frequencies.size());
  // The header: a frequency takes one byte or two, all else is small.
  const size_t header = 40 + top_stream.size() + activities(n_levels) * n_levels + 3 * shape.blocks() +
                        model_size(mask.model) + tables.classes * (1 + 3 * n_levels / 2);
  mask.bytes = bits * share / 8 + kLaneBytes * double(shape.lanes()) + double(header);
  mask.quantized = std::move(quantized);
  return mask;
}

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

Encoded SectionWriter::section(const Mask& mask, const Points& points) {
  const SectionShape& shape = task_.shape;
  const uint8_t* levels = mask.quantized.levels.data();
  const unsigned n_levels = mask.quantized.n_levels, width = bit_length(n_levels);
  const auto blocks = ems_rans_encode(levels, mask.contexts.data(), shape, mask.tables.view(),
                                      threads_for(shape.d, task_.threads));
  SectionHead head{n_levels, count, low_, width_, points, true, mask.model, mask.tables, {}};
  size_t coded = 0;
  for (const auto& block : blocks) {
    head.words.push_back(block.size() / 2);
    coded += block.size();
  }
  std::string body = head_bytes(head, true);
  const std::string plain = head_bytes(head, false);
  // The mask is stored if that is smaller.
  const bool stored = body.size() + coded >= ceil_div(shape.d * width, 8) + plain.size();
  if (stored) body = plain;
  body += top_stream;
  if (stored) {
    const std::vector<int64_t> codes(levels, levels + shape.d);
    body += ems_pack_bits(codes.data(), shape.d, width);
  } else {
    body.reserve(body.size() + coded + 16);
    for (const auto& block : blocks) body += block;
  }
  if (task_.is_signed) body += ems_pack_signs(task_.x, levels, shape.d, uint8_t(n_levels));
  Encoded out;
  put_varint(out.bytes, body.size());
  out.bytes += body;
  out.levels = n_levels;
  out.good = true;
  return out;
}

}  // namespace cutlayer
