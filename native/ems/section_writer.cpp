#include "ems/section_writer.hpp"

#include <cmath>
#include <cstring>

#include "common/float16.hpp"
#include "ems/padded_planes.hpp"

namespace cutlayer {
namespace {

constexpr double kMinStep = 0x1p-120, kMaxStep = 0x1p119;  // so that 1/64 of a step, and 127 steps, are float32
constexpr size_t kMaxForActivity = 16;

// The number with these bits.
double number_of(uint64_t bits, Values kind) {
  if (kind == Values::f16) return double(from_half(uint16_t(bits)));
  return double(float_of(kind == Values::f32 ? uint32_t(bits) : uint32_t(bits) << 16));
}

}  // namespace

double SectionWriter::clamped(double step) { return std::min(std::max(step, kMinStep), kMaxStep); }

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
  const bool stored = body.size() + coded >= (shape.d * width + 7) / 8 + plain.size();
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
