// Predictions of levels from those already known, and which levels come with which prediction.
#include <algorithm>
#include <mutex>

#include "ems/padded_planes.hpp"

namespace cutlayer {
namespace {

// What all rows of a prediction have in common: the weights of a channel, and where its parents are.
struct Predictor {
  const EmsModel& model;
  // n predictions at framed levels; `plane(c)` is the same place in another channel.
  template <class P>
  void framed(size_t c, size_t n, size_t pitch, P plane, uint8_t* out) const {
    const uint8_t* parent_at[4] = {};
    parents_of(c, plane, parent_at);
    ems_kernels().predict(plane(c), n, pitch, model.weights + 5 * row(c), model.parents, parent_at,
                          model.parent + row(c) * model.parents, model.grain, out);
  }
  // Those of a plane without a frame.
  void direct(size_t c, const EmsShape& shape, const uint8_t* sample, uint8_t* out) const {
    const size_t area = shape.height * shape.width;
    const auto plane = [=](size_t p) { return sample + p * area; };
    const uint8_t* parent_at[4] = {};
    parents_of(c, plane, parent_at);
    ems_kernels().predict_plane(plane(c), area, shape.width, model.weights + 5 * row(c), model.parents, parent_at,
                                model.parent + row(c) * model.parents, model.coarse, model.grain, out);
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

// Counts of one thread's run, added to those of all in the end.
class Histogram {
 public:
  Histogram(size_t symbols, int64_t* all, std::mutex& adding)
      : symbols_(symbols), counts_(kTables * kFine * symbols), all_(all), adding_(adding) {}
  ~Histogram() {
    const std::lock_guard<std::mutex> lock(adding_);
    const size_t bins = kFine * symbols_;
    for (size_t t = 0; t < kTables; ++t)
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

// Some samples, plane by plane.
void predict_planes(const uint8_t* levels, const EmsShape& shape, size_t first, size_t last, const EmsModel& model,
                    uint8_t* out, Histogram& histogram) {
  const Predictor predict{model};
  if (direct(shape)) {
    for (size_t s = first; s < last; ++s) {
      const size_t start = s * shape.sample();
      for (size_t c = 0; c < shape.channels; ++c)
        predict.direct(c, shape, levels + start, out + start + c * shape.height * shape.width);
      histogram.add(out + start, levels + start, shape.sample());
    }
    return;
  }
  const size_t together = Framed::together(shape), pitch = shape.pitch();
  Framed framed(shape, together);
  const size_t area = (together - 1) * framed.step + shape.height * pitch;
  std::vector<uint8_t> predicted(area + kSlack);
  for (size_t s = first, many = 0; s < last; s += many) {
    many = std::min(together, last - s);
    const size_t start = s * shape.sample(), n = std::min(many * shape.sample(), shape.d - start);
    framed.load(levels + start, many, n, model.coarse);
    for (size_t c = 0; c < shape.channels; ++c) {
      predict.framed(c, area - (together - many) * framed.step, pitch, [&](size_t p) { return framed.plane(p); },
                     predicted.data());
      for (size_t i = 0; i < many; ++i) {
        const size_t at = i * shape.sample() + c * shape.height * shape.width;
        if (at >= n) break;
        copy_rows(out + start + at, shape.width, predicted.data() + i * framed.step, pitch, shape.height,
                  std::min(shape.width, n - at));
      }
    }
    histogram.add(out + start, levels + start, n);
  }
}

// Some rows of some samples, several side by side, each below the one above it and with a zero at its end.
void predict_rows(const uint8_t* levels, const EmsShape& shape, EmsRows rows, size_t first, size_t last,
                  const EmsModel& model, Histogram& histogram) {
  const size_t width = shape.width, slot = width + 1, count = rows.last - rows.first;
  const size_t fitting = (size_t(1) << 17) / (shape.channels * slot);
  const size_t together = std::max<size_t>(1, std::min({kKeys / slot, fitting, (last - first) * count}));
  const size_t pitch = together * slot;
  std::vector<uint8_t> room(shape.channels * 2 * pitch + 1 + kSlack), predicted(pitch + kSlack);
  std::vector<uint8_t> some[2] = {std::vector<uint8_t>(shape.channels * together * width),
                                  std::vector<uint8_t>(shape.channels * together * width)};
  const auto line = [&](size_t c) { return room.data() + (2 * c + 1) * pitch + 1; };
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
    if (model.coarse)
      for (auto& level : room) level = uint8_t(level >> model.coarse);
    for (size_t c = 0; c < shape.channels; ++c) {
      Predictor{model}.framed(c, many * slot, pitch, line, predicted.data());
      copy_rows(some[0].data() + c * width, shape.channels * width, predicted.data(), slot, many, width);
    }
    histogram.add(some[0].data(), some[1].data(), many * shape.channels * width);
  }
}

}  // namespace

void ems_contexts(const uint8_t* levels, const EmsShape& shape, EmsRows rows, const EmsModel& model, unsigned most,
                  uint8_t* out, int64_t* histogram, int threads) {
  std::mutex adding;
  for_samples(shape, threads, [&](size_t first, size_t last) {
    Histogram found(most + 1, histogram, adding);
    if (rows.last - rows.first == shape.height) predict_planes(levels, shape, first, last, model, out, found);
    else predict_rows(levels, shape, rows, first, last, model, found);
  });
}

}  // namespace cutlayer
