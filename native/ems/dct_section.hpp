// Sections of DCT coefficients (FORMAT.md, "Transform"), encoded in one call: entropy/dct_section.py, dct_context_model.py
// and pca.py, operation by operation.
#pragma once
#include <algorithm>

#include "ems/section_writer.hpp"

namespace cutlayer {

// Every n-th sample, about `elements` elements in all: n, or 1 for all.
inline size_t thinned(const SectionShape& shape, size_t elements) {
  const size_t stride = std::max<size_t>(1, shape.d / std::max(elements, shape.sample())), whole = shape.d / shape.sample();
  return stride == 1 || whole < 2 * stride ? 1 : stride;
}

// Principal axes of a section's channels as rows, by falling energy, in 1/2^15. `largest`: the largest magnitude.
std::vector<int16_t> channel_rotation(const float* x, const SectionShape& shape, double largest);

// The context model of coefficients: weights that all channels share, fitted to levels of whole samples, with the gain of
// least cost.
OwnModel fit_dct_model(const uint8_t* levels, const SectionShape& shape, unsigned n_levels, const int64_t* cost_of,
                       int threads);

// A section of coefficients within `budget` bytes (if it is not negative) or within the relative squared error; not good
// if there is none. `task.trial` is that of the coefficients.
Encoded encode_dct_section(const SectionTask& task, int64_t budget, double error);

}  // namespace cutlayer
