// The context model: predictions of levels from levels already coded, and the histogram of levels by prediction.
#include <algorithm>
#include <mutex>

#include "ems/padded_planes.hpp"

namespace cutlayer {
namespace {

// Predicts channel by channel: looks up the weights of a channel, and the planes of its parents.
struct Predictor {
  const ContextModel& model;
  // n predictions from padded levels; `plane(c)` is the same position in another channel.
  template <class P>
  void padded(size_t c, size_t n, size_t pitch, P plane, uint8_t* out) const {
    const uint8_t* parent_at[4] = {};
    parents_of(c, plane, parent_at);
    ems_kernels().predict(plane(c), n, pitch, model.weights + 5 * row(c), model.parents, parent_at,
                          model.parent + row(c) * model.parents, model.prediction_shift, out);
  }
  // The predictions of a plane without padding.
  void unpadded(size_t c, const SectionShape& shape, const uint8_t* sample, uint8_t* out) const {
    const size_t area = shape.height * shape.width;
    const auto plane = [=](size_t p) { return sample + p * area; };
    const uint8_t* parent_at[4] = {};
    parents_of(c, plane, parent_at);
    ems_kernels().predict_plane(plane(c), area, shape.width, model.weights + 5 * row(c), model.parents, parent_at,
                                model.parent + row(c) * model.parents, model.level_shift, model.prediction_shift, out);
  }

 private:
  size_t row(size_t c) const { return model.rows > 1 ? c : 0; }
  template <class P>
  void parents_of(size_t c, P plane, const uint8_t** at) const {
    for (size_t j = 0; j < model.parents; ++j) {
      const uint8_t back = model.distance[row(c) * model.parents + j];
      if (back) at[j] = plane(c - back);
    }
  }
};

// The histogram of one thread's samples; the destructor adds it to the common one.
class Histogram {
 public:
  Histogram(size_t symbols, int64_t* all, std::mutex& adding)
      : symbols_(symbols), counts_(kHistograms * kPredictions * symbols), all_(all), adding_(adding) {}
  ~Histogram() {
    const std::lock_guard<std::mutex> lock(adding_);
    const size_t bins = kPredictions * symbols_;
    for (size_t t = 0; t < kHistograms; ++t)
      for (size_t i = 0; i < bins; ++i) all_[i] += counts_[t * bins + i];
  }
  void add(const uint8_t* predicted, const uint8_t* levels, size_t n) {
    ems_kernels().count_pairs(predicted, levels, n, symbols_, counts_.data());
  }

 private:
  size_t symbols_;
  std::vector<uint32_t> counts_;
  int64_t* all_;
  std::mutex& adding_;
};

// Whether the planes of a sample are predicted in one go: shared weights, and every 64 elements are whole planes.
bool in_one_go(const SectionShape& shape, const ContextModel& model) {
  const size_t area = shape.height * shape.width;
  return model.shared && 64 % area == 0 && shape.sample() % 64 == 0 && shape.d % shape.sample() == 0;
}

// Contexts and histogram of whole samples, with shared weights.
void predict_samples(const uint8_t* levels, const SectionShape& shape, size_t first, size_t last,
                     const ContextModel& model, uint8_t* out, Histogram& histogram) {
  const size_t width = shape.width, area = shape.height * width, sample = shape.sample(), end = model.rows - 1;
  SharedWeights shared{};
  const auto add = [&](size_t back, int8_t weight) -> uint8_t* {
    if (!weight) return nullptr;
    shared.back[shared.terms] = back;
    shared.pairs[shared.terms / 2] |= uint16_t(uint8_t(weight) << 8 * (shared.terms % 2));
    return shared.there[shared.terms++];
  };
  // Left, above, above left, above right: rows up and columns to the left.
  constexpr size_t up[4] = {0, 1, 1, 1};
  constexpr int left[4] = {1, 0, 1, -1};
  for (size_t t = 0; t < 4; ++t) {
    if (shape.height <= up[t] || (left[t] && width == 1)) continue;
    uint8_t* there = add(size_t(int(up[t] * width) + left[t]), model.weights[1 + t]);
    for (size_t i = 0; there && i < 64; ++i) {
      const int x = int(i % width) - left[t];
      there[i] = i % area / width >= up[t] && x >= 0 && x < int(width) ? 255 : 0;
    }
  }
  size_t before = 0;  // zeros in front of the first channel
  for (size_t j = 0; j < model.parents; ++j)
    // The last channel has all parents that there are.
    if (const size_t back = model.distance[end * model.parents + j] * area) {
      if (uint8_t* there = add(back, model.parent[end * model.parents + j])) std::memset(there, 255, 64);
      before = std::max(before, back);
    }
  shared.terms += shared.terms % 2;  // the weight of a last term without a partner is 0
  std::vector<int8_t> constants(sample);
  for (size_t c = 0; c < shape.channels; ++c) std::memset(constants.data() + c * area, model.weights[5 * c], area);
  std::vector<uint8_t> buffer(before + 64 + sample + kSlack);
  uint8_t* at = buffer.data() + before + 64;
  for (size_t s = first; s < last; ++s) {
    const uint8_t* from = levels + s * sample;
    if (model.level_shift) shift_levels(from, sample, model.level_shift, at);
    else
      std::memcpy(at, from, sample);
    ems_kernels().predict_shared(at, sample, shared, constants.data(), model.prediction_shift, out + s * sample);
    histogram.add(out + s * sample, from, sample);
  }
}

// Contexts and histogram of whole samples.
void predict_planes(const uint8_t* levels, const SectionShape& shape, size_t first, size_t last,
                    const ContextModel& model, uint8_t* out, Histogram& histogram) {
  const Predictor predict{model};
  if (in_one_go(shape, model)) return predict_samples(levels, shape, first, last, model, out, histogram);
  if (unpadded(shape)) {
    for (size_t s = first; s < last; ++s) {
      const size_t start = s * shape.sample();
      for (size_t c = 0; c < shape.channels; ++c)
        predict.unpadded(c, shape, levels + start, out + start + c * shape.height * shape.width);
      histogram.add(out + start, levels + start, shape.sample());
    }
    return;
  }
  const size_t together = PaddedPlanes::together(shape), pitch = shape.pitch();
  PaddedPlanes padded(shape, together);
  const size_t area = (together - 1) * padded.step + shape.height * pitch;
  std::vector<uint8_t> predicted(area + kSlack);
  for (size_t s = first, many = 0; s < last; s += many) {
    many = std::min(together, last - s);
    const size_t start = s * shape.sample(), n = std::min(many * shape.sample(), shape.d - start);
    padded.load(levels + start, many, n, model.level_shift);
    for (size_t c = 0; c < shape.channels; ++c) {
      predict.padded(c, area - (together - many) * padded.step, pitch, [&](size_t p) { return padded.plane(p); },
                     predicted.data());
      for (size_t i = 0; i < many; ++i) {
        const size_t at = i * shape.sample() + c * shape.height * shape.width;
        if (at >= n) break;
        copy_rows(out + start + at, shape.width, predicted.data() + i * padded.step, pitch, shape.height,
                  std::min(shape.width, n - at));
      }
    }
    histogram.add(out + start, levels + start, n);
  }
}

// The histogram of some rows of some samples. Several rows lie side by side, each with a zero at its end, below their
// upper neighbours, so that one call predicts them all.
void predict_rows(const uint8_t* levels, const SectionShape& shape, Rows rows, size_t first, size_t last,
                  const ContextModel& model, Histogram& histogram) {
  const size_t width = shape.width, slot = width + 1, count = rows.last - rows.first;
  const size_t fitting = (size_t(1) << 17) / (shape.channels * slot);
  const size_t together = std::max<size_t>(1, std::min({kKeyBatch / slot, fitting, (last - first) * count}));
  const size_t pitch = together * slot;
  std::vector<uint8_t> buffer(shape.channels * 2 * pitch + 1 + kSlack), predicted(pitch + kSlack);
  std::vector<uint8_t> some[2] = {std::vector<uint8_t>(shape.channels * together * width),
                                  std::vector<uint8_t>(shape.channels * together * width)};
  const auto line = [&](size_t c) { return buffer.data() + (2 * c + 1) * pitch + 1; };
  const size_t end = last * count;
  for (size_t r = first * count, many = 0; r < end; r += many) {
    many = std::min(together, end - r);
    with_width(width, [&](auto copy) {
      uint8_t* to = some[1].data();
      for (size_t i = 0; i < many; ++i) {
        const size_t s = (r + i) / count, y = rows.first + (r + i) % count;
        const uint8_t* from = levels + s * shape.sample() + y * width;
        for (size_t c = 0; c < shape.channels; ++c, from += shape.height * width, to += width) {
          uint8_t* here = line(c) + i * slot;
          copy(here, from);
          copy(to, from);
          if (y) copy(here - pitch, from - width);
          else std::memset(here - pitch, 0, width);
        }
      }
    });
    if (model.level_shift) shift_levels(buffer.data(), buffer.size(), model.level_shift, buffer.data());
    for (size_t c = 0; c < shape.channels; ++c) {
      Predictor{model}.padded(c, many * slot, pitch, line, predicted.data());
      copy_rows(some[0].data() + c * width, shape.channels * width, predicted.data(), slot, many, width);
    }
    histogram.add(some[0].data(), some[1].data(), many * shape.channels * width);
  }
}

}  // namespace

void ems_contexts(const uint8_t* levels, const SectionShape& shape, Rows rows, const ContextModel& model,
                  unsigned n_levels, uint8_t* out, int64_t* histogram, int threads) {
  std::mutex adding;
  for_samples(shape, threads, [&](size_t first, size_t last) {
    Histogram found(n_levels + 1, histogram, adding);
    if (rows.last - rows.first == shape.height) predict_planes(levels, shape, first, last, model, out, found);
    else predict_rows(levels, shape, rows, first, last, model, found);
  });
}

}  // namespace cutlayer
