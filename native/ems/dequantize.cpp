// Reconstruction: levels, top values and signs back to elements.
#include <cstring>

#include "common/float16.hpp"
#include "ems/padded_planes.hpp"

namespace cutlayer {

void ems_sample_offsets(const uint8_t* levels, const SectionShape& shape, unsigned n_levels, bool is_signed,
                        int64_t* tops, int64_t* signs, int threads) {
  const size_t n = shape.samples(), size = shape.sample();
  for_samples(shape, threads, [&](size_t first, size_t last) {
    for (size_t s = first; s < last; ++s) {
      const size_t count = sample_size(shape, s), marks = ems_kernels().count(levels + s * size, count,
          uint8_t(n_levels));
      tops[s + 1] = int64_t(marks);
      signs[s + 1] = is_signed ? int64_t(count - marks - ems_kernels().count(levels + s * size, count, 0)) : 0;
    }
  });
  tops[0] = signs[0] = 0;
  for (size_t s = 0; s < n; ++s) tops[s + 1] += tops[s], signs[s + 1] += signs[s];
}

void ems_dequantize(const uint8_t* levels, const SectionShape& shape, const float* table, size_t activities,
                    unsigned n_levels, const float* tops, const int64_t* tops_at, const uint8_t* signs,
                    const int64_t* signs_at, float* out, int threads) {
  const size_t size = shape.sample();
  ReconstructionTable known;
  known.values.assign(table, table + activities * (n_levels + 1));
  const size_t size_in_rounds = (known.values.size() + kLookupWords - 1) / kLookupWords * kLookupWords;
  known.low.resize(size_in_rounds);
  known.high.resize(size_in_rounds);
  for (size_t i = 0; i < known.values.size(); ++i) {
    const uint32_t raw = bits_of(known.values[i]);
    known.low[i] = uint16_t(raw);
    known.high[i] = uint16_t(raw >> 16);
  }
  for_samples(shape, threads, [&](size_t first, size_t last) {
    NeighbourPlanes around(shape, {0, shape.height}, n_levels, activities);
    for (size_t s = first; s < last; ++s) {
      const size_t count = sample_size(shape, s);
      const uint8_t* l = levels + s * size;
      float* y = out + s * size;
      if (activities == 1)
        ems_kernels().dequantize_levels(l, count, known, y);
      else
        ems_kernels().dequantize(around.load(l, count), known, y);
      if (signs) {
        const uint8_t* sign = signs + signs_at[s];
        for (size_t i = 0; i < count; i = skip_zeros(l, i + 1, count))
          if (l[i] != 0 && l[i] != n_levels) {
            y[i] = *sign ? -y[i] : y[i];
            ++sign;
          }
      }
      const float* top = tops + tops_at[s];
      for (const uint8_t *p = l, *end = l + count; (p = static_cast<const uint8_t*>(std::memchr(p, int(n_levels),
          size_t(end - p)))); ++p)
        y[p - l] = *top++;
    }
  });
}

}  // namespace cutlayer
