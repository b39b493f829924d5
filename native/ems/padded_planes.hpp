// Planes of levels in frames of zeros, where neighbours beyond the border are found.
#pragma once
#include <cstring>
#include <vector>

#include "ems/ems.hpp"
#include "common/parallel.hpp"

namespace cutlayer {

inline size_t sample_size(const EmsShape& shape, size_t s) {
  return std::min(shape.sample(), shape.d - s * shape.sample());
}

inline unsigned bit_length(unsigned v) { return v ? 32 - unsigned(__builtin_clz(v)) : 0; }

// Whether planes are worked on as they are, without a frame. Very large ones may have to be cut into rows.
inline bool direct(const EmsShape& shape) {
  return ems_kernels().predict_plane && shape.even() && shape.height * shape.width <= size_t(1) << 20;
}

// Samples are handed out in runs, so that a thread makes its room once a run; there are several runs for each thread.
template <class F>
void for_samples(const EmsShape& shape, int threads, F f) {
  const size_t n = shape.samples(), each = (size_t(1) << 17) / shape.sample();
  const size_t run = std::max<size_t>(1, std::min(each, threads > 1 ? n / size_t(3 * threads) : n));
  parallel(threads, (n + run - 1) / run, [&](size_t i) { f(i * run, std::min(n, (i + 1) * run)); });
}

// Copies of a known size are single instructions, which matters for the short rows of deep cuts.
template <class F>
void with_width(size_t width, F f) {
  if (width == 4) f([](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 4); });
  else if (width == 8) f([](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 8); });
  else if (width == 16) f([](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 16); });
  else if (width == 32) f([](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 32); });
  else f([=](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, width); });
}

// Rows that are so far apart, here and there.
inline void copy_rows(uint8_t* to, size_t to_pitch, const uint8_t* from, size_t from_pitch, size_t rows, size_t width) {
  with_width(width, [=](auto copy) {
    for (size_t y = 0; y < rows; ++y) copy(to + y * to_pitch, from + y * from_pitch);
  });
}

// The planes of some samples, channel by channel. All lie one below the other with a row of zeros between them, so
// that small ones are worked on together.
struct Framed {
  const EmsShape& shape;
  const size_t most, step, channel;  // samples; bytes from one to the next; of a channel
  std::vector<uint8_t> room;
  explicit Framed(const EmsShape& shape, size_t most = 1)
      : shape(shape), most(most), step((shape.height + 1) * shape.pitch()), channel(most * step),
        room(shape.channels * channel + shape.pitch() + 1 + kSlack) {}
  // As many samples as make the work on a plane worth beginning.
  static size_t together(const EmsShape& shape) {
    const size_t enough = 256 / (shape.height * shape.width);
    const size_t fitting = (size_t(1) << 17) / (shape.channels * (shape.height + 1) * shape.pitch());
    return std::max<size_t>(1, std::min(enough, fitting));
  }
  uint8_t* plane(size_t c, size_t s = 0) { return room.data() + c * channel + s * step + shape.pitch() + 1; }
  // So many whole samples, or one that may be short.
  void load(const uint8_t* from, size_t samples, size_t n, unsigned coarse) {
    if (n < shape.sample()) {  // one short row
      std::memset(plane(0), 0, shape.width);
      std::memcpy(plane(0), from, n);
    } else {
      for (size_t s = 0; s < samples; ++s)
        for (size_t c = 0; c < shape.channels; ++c, from += shape.height * shape.width)
          copy_rows(plane(c, s), shape.pitch(), from, shape.width, shape.height, shape.width);
    }
    if (coarse)
      for (auto& level : room) level = uint8_t(level >> coarse);
  }
};

// By how many bits the sum of four neighbours is shifted to be one of 16 kinds.
inline unsigned kind_shift(unsigned most) {
  const unsigned coarse = std::max(0, int(bit_length(most)) - 5);
  return unsigned(std::max(0, int(bit_length(4 * (most >> coarse))) - 4));
}

// The planes of a sample, and what they are like with coarser levels.
struct Surroundings {
  const EmsShape& shape;
  EmsPlanes planes;
  Surroundings(const EmsShape& shape, EmsRows rows, unsigned most, size_t kinds)
      : shape(shape), coarse(unsigned(std::max(0, int(bit_length(most)) - 5))), plain(shape), coarser(shape) {
    // One kind: all sums are 0.
    planes = {nullptr, nullptr, shape.channels, shape.height, shape.width, shape.pitch(), rows,
              kinds == 1 ? 15 : kind_shift(most), most + 1, coarse, nullptr};
  }
  const EmsPlanes& load(const uint8_t* sample, size_t n) {
    if (direct(shape) && planes.rows.last - planes.rows.first == shape.height) {
      planes.plain = sample;
      return planes;
    }
    plain.load(sample, 1, n, 0);
    if (coarse) coarser.load(sample, 1, n, coarse);
    planes.at = plain.plane(0);
    planes.coarse_at = (coarse ? coarser : plain).plane(0);
    planes.width = std::min(shape.width, n);
    return planes;
  }

 private:
  unsigned coarse;
  Framed plain, coarser;
};

}  // namespace cutlayer
