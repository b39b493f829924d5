// Planes of levels padded with zeros, so that neighbours beyond the border are 0.
#pragma once
#include <cstring>
#include <vector>

#include "common/parallel.hpp"
#include "ems/kernels.hpp"

namespace cutlayer {

inline size_t sample_size(const SectionShape& shape, size_t s) {
  return std::min(shape.sample(), shape.d - s * shape.sample());
}

inline unsigned bit_length(unsigned v) { return v ? 32 - unsigned(__builtin_clz(v)) : 0; }

// Levels shifted right, eight in a word at a time; `to` may be `from`.
inline void shift_levels(const uint8_t* from, size_t n, unsigned shift, uint8_t* to) {
  const uint64_t rest = 0x0101010101010101u * (0xffu >> shift);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t word;
    std::memcpy(&word, from + i, 8);
    word = word >> shift & rest;
    std::memcpy(to + i, &word, 8);
  }
  for (; i < n; ++i) to[i] = uint8_t(from[i] >> shift);
}

// Whether planes are processed without padding. Very large ones are not, since they may be divided into rows.
inline bool unpadded(const SectionShape& shape) {
  return ems_kernels().predict_plane && shape.aligned64() && shape.height * shape.width <= size_t(1) << 20;
}

// f(first sample, end) for runs of samples, in parallel. A thread allocates its buffers once a run; there are several
// runs for each thread.
template <class F>
void for_samples(const SectionShape& shape, int threads, F f) {
  const size_t n = shape.samples(), each = (size_t(1) << 20) / shape.sample();
  const size_t run = std::max<size_t>(1, threads > 1 ? std::min(each, n / size_t(3 * threads)) : n);
  parallel(threads, (n + run - 1) / run, [&](size_t i) { f(i * run, std::min(n, (i + 1) * run)); });
}

// f(copy) with a function that copies a row. For usual widths the size is a constant, and the copy one instruction.
template <class F>
void with_width(size_t width, F f) {
  if (width == 1) f([](uint8_t* to, const uint8_t* from) { *to = *from; });
  else if (width == 2) f([](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 2); });
  else if (width == 4) f([](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 4); });
  else if (width == 8) f([](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 8); });
  else if (width == 16) f([](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 16); });
  else if (width == 32) f([](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 32); });
  else f([=](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, width); });
}

// Copies rows between images of different pitch.
inline void copy_rows(uint8_t* to, size_t to_pitch, const uint8_t* from, size_t from_pitch, size_t rows, size_t width) {
  with_width(width, [=](auto copy) {
    for (size_t y = 0; y < rows; ++y) copy(to + y * to_pitch, from + y * from_pitch);
  });
}

// The padded planes of some samples, channel by channel. A channel's planes lie one below the other with a row of zeros
// between them, so that one call handles several small ones.
struct PaddedPlanes {
  const SectionShape& shape;
  const size_t max_samples, step, channel;  // step, channel: bytes of a padded plane, and of a channel
  std::vector<uint8_t> buffer;
  explicit PaddedPlanes(const SectionShape& shape, size_t max_samples = 1)
      : shape(shape), max_samples(max_samples), step((shape.height + 1) * shape.pitch()), channel(max_samples * step),
        buffer(shape.channels * channel + shape.pitch() + 1 + kSlack) {}
  // How many samples to handle together, so that calls on small planes pay.
  static size_t together(const SectionShape& shape) {
    const size_t enough = 256 / (shape.height * shape.width);
    const size_t fitting = (size_t(1) << 19) / (shape.channels * (shape.height + 1) * shape.pitch());
    return std::max<size_t>(1, std::min(enough, fitting));
  }
  uint8_t* plane(size_t c, size_t s = 0) { return buffer.data() + c * channel + s * step + shape.pitch() + 1; }
  // Loads `samples` whole samples, or one short one of n elements.
  void load(const uint8_t* from, size_t samples, size_t n, unsigned level_shift) {
    if (n < shape.sample()) {  // one short row
      std::memset(plane(0), 0, shape.width);
      std::memcpy(plane(0), from, n);
    } else {
      for (size_t s = 0; s < samples; ++s)
        for (size_t c = 0; c < shape.channels; ++c, from += shape.height * shape.width)
          copy_rows(plane(c, s), shape.pitch(), from, shape.width, shape.height, shape.width);
    }
    if (level_shift) shift_levels(buffer.data(), buffer.size(), level_shift, buffer.data());
  }
};

// Bits by which the sum of four neighbours is shifted right, to one of 16 activities.
inline unsigned activity_shift(unsigned n_levels) {
  const unsigned level_shift = std::max(0, int(bit_length(n_levels)) - 5);
  return unsigned(std::max(0, int(bit_length(4 * (n_levels >> level_shift))) - 4));
}

// Loads one sample at a time as `LevelPlanes`.
struct NeighbourPlanes {
  const SectionShape& shape;
  LevelPlanes planes;
  NeighbourPlanes(const SectionShape& shape, Rows rows, unsigned n_levels, size_t activities)
      : shape(shape), level_shift(unsigned(std::max(0, int(bit_length(n_levels)) - 5))), plain(shape), shifted(shape) {
    // With one activity all sums are shifted to 0.
    planes = {nullptr, nullptr, shape.channels, shape.height, shape.width, shape.pitch(), rows,
              activities == 1 ? 15 : activity_shift(n_levels), n_levels + 1, level_shift, nullptr};
  }
  const LevelPlanes& load(const uint8_t* sample, size_t n) {
    if (unpadded(shape) && planes.rows.last - planes.rows.first == shape.height) {
      planes.plain = sample;
      return planes;
    }
    plain.load(sample, 1, n, 0);
    if (level_shift) shifted.load(sample, 1, n, level_shift);
    planes.at = plain.plane(0);
    planes.shifted_at = (level_shift ? shifted : plain).plane(0);
    planes.width = std::min(shape.width, n);
    return planes;
  }

 private:
  unsigned level_shift;
  PaddedPlanes plain, shifted;
};

}  // namespace cutlayer
