// Encodes one section at a given quantizer step, or estimates what that would cost: entropy/section_writer.py, operation
// by operation, so that both give the same bytes.
#pragma once
#include "ems/section.hpp"

namespace cutlayer {

// Step, number of levels, and levels with the mark of top values.
struct Quantized {
  double step = 0;
  unsigned n_levels = 0;
  Buffer<uint8_t> levels;
};

struct Mask {
  Quantized quantized;
  Buffer<uint8_t> contexts;
  OwnModel model;
  OwnTables tables;
  double bytes = 0;  // an estimate of the section's size
  bool marks_are_tops = false;
};

// With fewer elements, a level has one reconstruction point.
constexpr size_t kMinForActivity = size_t(1) << 15;

class SectionWriter {
 public:
  SectionWriter(const SectionTask& task, const Selection& top, size_t row);
  virtual ~SectionWriter() = default;

  // The number of top values, the smallest, the step where a search begins, and the bytes of all top values.
  uint64_t count;
  double topmin, first_step;
  double model_range = 0.4;  // |log(step / other step)| up to which both use the same context model
  std::string top_stream;

  size_t elements() const { return task_.shape.d; }
  // Whether more channels than 64 have weights of their own.
  bool has_many_channels() const;
  double estimate_bytes(double step);
  virtual double estimate_error(double step) { return fit_points_at(step).second; }
  // The context model for a step; a close step's model is reused. `known`: the trial rows at this step, if they are there.
  const OwnModel& model_for(double step, const Quantized* known = nullptr);
  virtual OwnModel fit_model(double step, const Quantized* known = nullptr);
  Quantized quantize(double step, unsigned n_levels = 0);
  Mask mask_at(double step, const OwnModel* model, unsigned n_levels = 0);
  Mask mask_of(Quantized quantized, const OwnModel* model);
  Points fit_points(const Quantized& quantized);
  virtual double error(const Quantized& quantized, const Points& points);
  // The squared error of a small section in full precision; 0 for a large one.
  virtual double error_of_few(const Quantized& quantized, const Points& points);
  // Takes the levels that another quantizer made; marks the top values.
  Quantized evenly(unsigned n_levels, bool nearest);
  Encoded section(const Mask& mask, const Points& points);
  const SectionTask& task() const { return task_; }

 protected:
  static double clamped(double step);
  float scale(double step) const { return float(64 / step); }
  unsigned levels_up_to_topmin(double step) const;
  size_t activities(unsigned n_levels) const;
  Quantized quantize_subset(double step, const float* elements, size_t n) const;
  virtual OwnModel fit_to(unsigned n_levels, const uint8_t* levels, const Trial& of);
  virtual size_t model_size(const OwnModel& model) const { return model.weights.size() + 2 * model.distance.size(); }
  // Reconstruction points of levels of the trial rows, and an estimate of the section's error, if that is wanted.
  std::pair<Points, double> points_of(double step, unsigned n_levels, const uint8_t* levels, bool with_error);
  std::pair<Points, double> fit_points_at(double step);
  bool negative();

  SectionTask task_;
  Trial all_;
  const float* trial_elements_;
  Buffer<float> gathered_;
  double overfit_bits_ = 2.0;
  std::vector<float> magnitudes_;  // of the top values, as they are stored

 private:
  Mask make_mask(Quantized quantized, const Trial& of, const OwnModel* model);
  void mark_tops(uint8_t* levels, unsigned n_levels) const;

  uint64_t low_;
  unsigned width_;
  float threshold_;
  std::vector<int64_t> positions_;
  double fitted_at_ = 0;  // the step of `fitted_`; 0 if there is none
  OwnModel fitted_;
  Mask tried_;  // the last estimate, if it was of all rows
  int negative_ = -1;
};

}  // namespace cutlayer
