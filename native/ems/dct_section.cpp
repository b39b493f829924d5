#include "ems/dct_section.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "common/float16.hpp"
#include "common/parallel.hpp"
#include "ems/dct.hpp"
#include "ems/kernels.hpp"
#include "ems/rate_control.hpp"

namespace cutlayer {
namespace {

constexpr size_t kTopShare = 8192, kMaxTopShare = 16;
constexpr double kBudgetUsed = 0.9, kGainRange = 0.25;
constexpr size_t kFitElements = size_t(1) << 18, kGainElements = size_t(1) << 16;

// Every n-th sample from the first on.
template <class T>
Buffer<T> samples_of(const T* from, const SectionShape& shape, size_t first, size_t stride, SectionShape& taken) {
  const size_t whole = shape.d / shape.sample(), many = (whole - first + stride - 1) / stride;
  taken = shape;
  taken.d = many * shape.sample();
  Buffer<T> out(taken.d);
  for (size_t i = 0; i < many; ++i)
    std::memcpy(out.data() + i * shape.sample(), from + (first + i * stride) * shape.sample(), shape.sample() * sizeof(T));
  return out;
}

// Decodes coefficients, sample by sample. The signs are taken from the original ones, y.
class Decoder {
 public:
  Decoder(const Quantized& quantized, const Points& points, const SectionShape& shape, const std::vector<float>& tops,
          int threads)
      : levels_(quantized.levels.data()), n_levels_(quantized.n_levels), activities_(points.activities), shape_(shape),
        tops_(tops.data()), table_(points.activities * (n_levels_ + 1)), tops_at_(shape.samples() + 1) {
    const float unit = points.step / 64.0f;
    for (size_t a = 0; a < activities_; ++a)
      for (size_t l = 0; l < n_levels_; ++l)
        table_[a * (n_levels_ + 1) + l] = float(64 * int(l) + points.offsets[a * n_levels_ + l]) * unit;
    std::vector<int64_t> signs_at(tops_at_.size());
    ems_sample_offsets(levels_, shape, n_levels_, false, tops_at_.data(), signs_at.data(), threads);
  }
  void decode(size_t s, const float* y, float* out) const {
    const size_t sample = shape_.sample();
    SectionShape one = shape_;
    one.d = sample;
    const int64_t none[2] = {0, 0}, tops_at[2] = {0, tops_at_[s + 1] - tops_at_[s]};
    ems_dequantize(levels_ + s * sample, one, table_.data(), activities_, n_levels_, tops_ + tops_at_[s], tops_at, nullptr,
                   none, out, 1);
    copy_signs(y, sample, out);
  }

 private:
  const uint8_t* levels_;
  unsigned n_levels_;
  size_t activities_;
  SectionShape shape_;
  const float* tops_;
  std::vector<float> table_;
  std::vector<int64_t> tops_at_;
};

// The elements of a section and its coefficients.
struct Transformed {
  const SectionTask& task;  // of the elements
  SectionShape inner;
  float lowest, highest;
  std::vector<int16_t> rotation;
  std::vector<float> inverse;  // the transposed rotation
  Buffer<float> y;

  explicit Transformed(const SectionTask& task) : task(task) {
    const SectionShape& shape = task.shape;
    ems_kernels().range(task.x, shape.d, &lowest, &highest);
    lowest += 0.0f;  // -0 becomes 0
    highest += 0.0f;
    const double largest = std::max(std::fabs(double(lowest)), std::fabs(double(highest)));
    rotation = channel_rotation(task.x, shape, largest > 0 ? largest : 1.0);
    const size_t channels = shape.channels;
    std::vector<float> matrix(channels * channels);
    inverse.resize(matrix.size());
    for (size_t i = 0; i < matrix.size(); ++i)
      inverse[i % channels * channels + i / channels] = matrix[i] = float(rotation[i]) / 32768.0f;
    inner = {0, 64 * channels, (shape.height + 7) / 8, (shape.width + 7) / 8, 0};
    inner.d = shape.samples() * inner.sample();
    inner.lane = std::max<size_t>(1, 8192 / inner.sample()) * inner.sample();
    y = Buffer<float>(inner.d);
    dct_forward(task.x, planes(shape), matrix.data(), y.data(), threads_for(shape.d, task.threads, kThreadedCheap));
  }
  static DctShape planes(const SectionShape& s) { return {s.samples(), s.channels, s.height, s.width}; }

  // The squared error of the elements that coefficients decode to. `decoded(sample, room)` gives those of a sample.
  template <class F>
  double squared_error(const float* x, const SectionShape& shape, F decoded) const {
    const DctShape of = planes(shape);
    // Samples that end together with a chunk, whose errors are summed as in ems_energy.
    const size_t whole = shape.samples(), together = std::min(whole, kChunk / std::gcd(kChunk, shape.sample()));
    std::vector<double> parts((shape.d + kChunk - 1) / kChunk);
    parallel(threads_for(shape.d, task.threads, kThreadedCheap), (whole + together - 1) / together, [&](size_t group) {
      const size_t first = group * together, last = std::min(whole, first + together);
      const size_t start = first * shape.sample(), end = last * shape.sample();
      Buffer<float> out(end - start), room(of.coefficients()), buffer(of.coefficients());
      for (size_t s = first; s < last; ++s)
        dct_inverse_sample(decoded(s, room.data()), of, inverse.data(), lowest, highest,
                           out.data() + (s - first) * shape.sample(), buffer.data());
      subtract_from(x + start, end - start, out.data());
      for (size_t i = start; i < end; i += kChunk)
        parts[i / kChunk] = ems_kernels().energy(out.data() + (i - start), std::min(kChunk, end - i));
    });
    return std::accumulate(parts.begin(), parts.end(), 0.0);
  }
};

// Its errors are those of the decoded elements.
class CoefficientWriter : public SectionWriter {
 public:
  CoefficientWriter(const Transformed& of, const SectionTask& task, const Selection& top)
      : SectionWriter(task, top, 0), of_(of) {
    overfit_bits_ = 0;  // shared weights are few, and fitted to other samples than the trial rows
  }
  // Fitted to some samples.
  OwnModel fit_model(double step, const Quantized*) override {
    const SectionShape& shape = task_.shape;
    const size_t stride = thinned(shape, std::max(kFitElements, 4 * shape.sample()));
    SectionShape taken = shape;
    Buffer<float> some;
    if (stride > 1) some = samples_of(task_.x, shape, stride / 2, stride, taken);
    const Quantized found = quantize_subset(step, stride > 1 ? some.data() : task_.x, taken.d);
    return fit_to(found.n_levels, found.levels.data(), {taken, {0, taken.height}, nullptr});
  }
  double error(const Quantized& quantized, const Points& points) override {
    const Decoder decoder(quantized, points, task_.shape, magnitudes_, threads_for(task_.shape.d, task_.threads));
    const size_t sample = task_.shape.sample();
    return of_.squared_error(of_.task.x, of_.task.shape, [&](size_t s, float* room) {
      decoder.decode(s, task_.x + s * sample, room);
      return room;
    });
  }
  double error_of_few(const Quantized&, const Points&) override { return 0; }  // `error` is of full precision
  // The error of coefficients times the gain, which is measured on some samples.
  double estimate_error(double step) override {
    if (gain_at_ == 0 || std::fabs(std::log(step / gain_at_)) > kGainRange) {
      gain_at_ = step;
      gain_ = measured_gain(step);
    }
    return fit_points_at(step).second * gain_;
  }

 protected:
  OwnModel fit_to(unsigned n_levels, const uint8_t* levels, const Trial& of) override {
    return fit_dct_model(levels, of.shape, n_levels, task_.cost_of, threads_for(of.shape.d, task_.threads));
  }
  size_t model_size(const OwnModel& model) const override { return model.rows + 5 + 2 * model.parents; }

 private:
  // Squared error of elements over that of coefficients. Below 1, because decoded elements are clamped.
  double measured_gain(double step) {
    const SectionShape& shape = of_.task.shape;
    const size_t stride = thinned(shape, std::max(kGainElements, 2 * shape.sample()));
    SectionShape outer = shape, inner = task_.shape;
    Buffer<float> some_x, some_y;
    if (stride > 1) {
      some_x = samples_of(of_.task.x, shape, 0, stride, outer);
      some_y = samples_of(task_.x, task_.shape, 0, stride, inner);
    }
    const float *x = stride > 1 ? some_x.data() : of_.task.x, *y = stride > 1 ? some_y.data() : task_.x;
    const Quantized levels = quantize_subset(step, y, inner.d);
    const Points points = fit_points_at(levels.step).first;
    std::vector<float> tops;
    for (size_t i = 0; i < inner.d; ++i)
      if (levels.levels.data()[i] == levels.n_levels) tops.push_back(std::fabs(y[i]));
    const Decoder decoder(levels, points, inner, tops, 1);
    const size_t sample = inner.sample();
    Buffer<float> found(inner.d);
    for (size_t s = 0; s < inner.samples(); ++s) decoder.decode(s, y + s * sample, found.data() + s * sample);
    const double elements =
        of_.squared_error(x, outer, [&](size_t s, float*) { return found.data() + s * sample; });
    subtract_from(y, inner.d, found.data());
    const double coefficients = ems_energy(found.data(), inner.d, threads_for(inner.d, task_.threads, kThreadedCheap));
    return coefficients > 0 ? elements / coefficients : 1.0;
  }

  const Transformed& of_;
  double gain_at_ = 0, gain_ = 1;  // a step, and the gain there
};

// The header in front of the coefficients' section, and one size in front of both.
Encoded with_header(const Transformed& t, const Encoded& inner) {
  size_t skipped = 1;
  while (uint8_t(inner.bytes[skipped - 1]) >= 0x80) ++skipped;
  std::string body(1, char(2));
  body.append(reinterpret_cast<const char*>(&t.lowest), 4);
  body.append(reinterpret_cast<const char*>(&t.highest), 4);
  body.append(reinterpret_cast<const char*>(t.rotation.data()), 2 * t.rotation.size());
  body.append(inner.bytes, skipped, std::string::npos);
  Encoded out;
  put_varint(out.bytes, body.size());
  out.bytes += body;
  out.levels = inner.levels;
  out.good = true;
  return out;
}

}  // namespace

Encoded encode_dct_section(const SectionTask& task, int64_t budget, double error) {
  const bool by_rate = budget >= 0;
  const int64_t left = budget - int64_t(9 + 2 * task.shape.channels * task.shape.channels) - 5;
  if (by_rate && left <= 0) return {};
  const Transformed t(task);
  const size_t d = t.inner.d;
  double bound = 0, first_step;
  size_t tops = std::max<size_t>(1, d / kTopShare);
  if (by_rate) {
    // The search begins at the step that leaves about one nonzero coefficient for every four bits.
    std::vector<float> some;
    for (size_t i = 0; i < d; i += std::max<size_t>(1, d >> 16) | 1) some.push_back(std::fabs(t.y.data()[i]));
    const int64_t n = int64_t(some.size()), rank = std::max<int64_t>(1, n - n * 2 * left / int64_t(d));
    std::nth_element(some.begin(), some.begin() + (rank - 1), some.end());
    first_step = some[size_t(rank - 1)];
    tops = std::max<size_t>(1, std::min(d / kTopShare, size_t(left) / 16));
  } else {
    bound = error * ems_energy(task.x, task.shape.d, threads_for(task.shape.d, task.threads, kThreadedCheap));
    volatile double half = 0.5;  // pow as Python calls it, never sqrt
    first_step = std::pow(6 * bound / double(d), half);
  }
  SectionTask inner = task;
  inner.x = t.y.data();
  inner.shape = t.inner;
  inner.is_signed = true;
  constexpr uint32_t limits[3] = {0x67800000, 0x477fe000, 0x67800000};  // 2^80, or the largest float16
  Encoded best;
  for (;;) {
    const Selection top = select_top(inner.x, {1, d, tops}, threads_for(d, task.threads, kThreadedCheap));
    if (top.max_bits > limits[int(task.values)]) break;
    CoefficientWriter writer(t, inner, top);
    // Few coefficients are large, so the smallest top value is a poor starting point for the search.
    if (0 < first_step && first_step < writer.first_step) writer.first_step = first_step;
    tops *= 4;
    if (by_rate) {
      Encoded encoded = with_header(t, within_bytes(writer, left));
      const double size = double(encoded.bytes.size());
      const bool full = size > kBudgetUsed * double(budget) || encoded.levels < kMaxLevels;
      if (int64_t(encoded.bytes.size()) <= budget) best = std::move(encoded);
      if (full) break;
    } else {
      const Encoded found = within_error(writer, bound);
      if (found.good) return with_header(t, found);
    }
    // Bytes are left over at the most levels, or these are too coarse: then more coefficients become top values.
    if (tops > d / kMaxTopShare) break;
  }
  return best;
}

}  // namespace cutlayer
