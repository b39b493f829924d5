// The codec `ems` (FORMAT.md, "ems"): quantization, context model, rANS, bit packing and reconstruction.
// In all functions `n_levels` is L of FORMAT.md: levels 0 .. L - 1, and L marks a top value. Magnitudes are measured in
// fixed point, in 1/64 of a step; `scale` is the factor to it. `activities` is 16, or 1 where reconstruction does not
// depend on activity.
#pragma once
#include <cstring>
#include <string>
#include <vector>

#include "sparse/topk.hpp"

namespace cutlayer {

constexpr size_t kLanes = 32;          // interleaved rANS coders of a block
constexpr size_t kPredictions = 128;   // values of a quantized prediction
constexpr size_t kNeighbours = 4;
constexpr unsigned kScaleBits = 11;    // the frequencies of a class add up to 2^11
constexpr uint32_t kScale = 1u << kScaleBits;
constexpr uint32_t kLowState = 1u << 16;  // the smallest rANS state
constexpr size_t kMaxClasses = 32;     // space for classes; a frame has at most 24

// A section: d elements as samples of channels of height x width. Only a sample of one row can be short, the last one.
struct SectionShape {
  size_t d, channels, height, width, lane;  // lane: elements that one lane codes
  size_t sample() const { return channels * height * width; }
  size_t samples() const { return (d + sample() - 1) / sample(); }
  size_t lanes() const { return (d + lane - 1) / lane; }
  size_t blocks() const { return (lanes() + kLanes - 1) / kLanes; }
  // Planes are padded with zeros, for neighbours beyond the border: a row above and below, and one column between the
  // end of each row and the start of the next. Pitch: from a row to the next; first: of the plane's first element.
  size_t pitch() const { return width + 1; }
  size_t first() const { return pitch() + 1; }
  // Whether every 64 consecutive elements are whole rows of one plane, or part of one row.
  bool aligned64() const {
    return height * width % 64 == 0 && (width % 64 == 0 || 64 % width == 0) && d % sample() == 0;
  }
};

// The rows of each plane that are counted. Others are there only as neighbours.
struct Rows {
  size_t first, last;
};

// Weights of the linear prediction: one row for all channels, or one for each.
struct ContextModel {
  size_t rows, parents;
  const int8_t* weights;    // rows x 5: constant, left, above, above left, above right
  const uint8_t* distance;  // rows x parents: channels back; 0 for no parent
  const int8_t* parent;     // rows x parents: weights
  unsigned level_shift, prediction_shift;
  bool shared = false;      // all rows have the same weights and parents, but for the constant
};

// The positions that a least-squares fit uses: every `stride`-th sample, every `thin`-th counted row and column.
struct FitSample {
  Rows rows;
  size_t stride, thin, positions;  // positions: of each channel
  unsigned level_shift;
  bool per_channel;
};

// The class of each prediction, and the frequencies of `symbols` symbols in each class.
struct FrequencyTables {
  size_t classes, symbols;
  const uint8_t* class_of;
  const int64_t* frequencies;
};

// The index of the next level from i on that may not be zero. Skips eight zeros at a time, since most levels are zero.
inline size_t skip_zeros(const uint8_t* levels, size_t i, size_t d) {
  for (uint64_t eight; i + 8 <= d && (std::memcpy(&eight, levels + i, 8), eight == 0);) i += 8;
  return i;
}

// Quantize with a dead zone. Magnitudes from `mark_from` on get the level `n_levels`.
void ems_quantize(const float* x, size_t d, float scale, unsigned n_levels, float mark_from, uint8_t* out, int threads);
// Stochastic rounding, for `rounding=stochastic`. `draw`: where the random words come from (FORMAT.md, "Randomness").
struct Draw {
  uint64_t seed;
  uint32_t stream, section;
};
void ems_quantize_stochastically(const float* x, size_t d, float scale, unsigned n_levels, Draw draw, uint8_t* out,
                                 int threads);
// The levels of the marked elements, in order, with the signs of their elements.
std::vector<int64_t> ems_stochastic_tops(const float* x, const uint8_t* levels, size_t d, float scale, unsigned n_levels,
                                         Draw draw);
// Quantize as in `ms`: levels are equal parts of topmin.
void ems_quantize_evenly(const float* x, size_t d, double topmin, unsigned n_levels, bool nearest, uint8_t* out,
                         int threads);
double ems_energy(const float* x, size_t d, int threads);
// The top values as bits of their type, and their positions.
void ems_top_values(const float* x, const Selection& top, size_t row, Values kind, int64_t* out, int64_t* where,
                    int threads);
// Least-squares fit of the weights: one row, or with `per_channel` a row with so many parents for each channel.
void ems_fit_weights(const uint8_t* levels, const SectionShape& shape, const FitSample& fit, size_t parents,
                     int8_t* weights, uint8_t* distance, int8_t* parent, int threads);
// The context (quantized prediction) of each element, if all rows are counted; and the histogram of levels by context.
void ems_contexts(const uint8_t* levels, const SectionShape& shape, Rows rows, const ContextModel& model,
                  unsigned n_levels, uint8_t* out, int64_t* histogram, int threads);
// By activity and level, the number of elements and the sum of their magnitudes; and the sum of all squares, unless null.
void ems_level_sums(const float* x, const uint8_t* levels, const SectionShape& shape, Rows rows, float scale,
                    unsigned n_levels, size_t activities, int64_t* out, int64_t* squares, int threads);
// The squared error with the reconstruction points `table`, activities x (n_levels + 1); -1 for top values.
uint64_t ems_squared_error(const float* x, const uint8_t* levels, const SectionShape& shape, float scale,
                           unsigned n_levels, size_t activities, const int64_t* table, int threads);
// Strips: `rows` rows of all channels of a sample, from each `where` = (sample, first row); zeros beyond the planes.
void ems_gather_rows(const uint8_t* elements, size_t size, const SectionShape& shape, const int64_t* where,
                     size_t strips, size_t rows, uint8_t* out, int threads);
// Classes and their frequencies from a histogram that is not empty. Returns the number of classes; `cost` is the cost
// of coding the counted elements, in units of `cost_of`.
size_t ems_frequency_tables(const int64_t* histogram, size_t symbols, size_t max_classes, size_t min_elements,
                            const int64_t* cost_of, int64_t* starts, int64_t* frequencies, int64_t& cost);
std::vector<std::string> ems_rans_encode(const uint8_t* levels, const uint8_t* contexts, const SectionShape& shape,
                                         const FrequencyTables& tables, int threads);
// False if no encoder could have written the blocks. `words`: 16-bit words of each block.
bool ems_rans_decode(const uint8_t* in, const std::vector<uint64_t>& words, const SectionShape& shape,
                     const ContextModel& model, const FrequencyTables& tables, uint8_t* out, int threads);
std::string ems_pack_bits(const int64_t* codes, size_t n, unsigned width);
// False if the unused bits at the end are not zero.
bool ems_unpack_bits(const uint8_t* in, size_t n, unsigned width, int64_t* out);
std::string ems_pack_signs(const float* x, const uint8_t* levels, size_t d, uint8_t mark);
// Where each sample's top values and sign bits begin, and last where all of them end.
void ems_sample_offsets(const uint8_t* levels, const SectionShape& shape, unsigned n_levels, bool is_signed,
                        int64_t* tops, int64_t* signs, int threads);
// Levels, top values and signs (one byte each) back to elements. `table`: activities x (n_levels + 1) values.
void ems_dequantize(const uint8_t* levels, const SectionShape& shape, const float* table, size_t activities,
                    unsigned n_levels, const float* tops, const int64_t* tops_at, const uint8_t* signs,
                    const int64_t* signs_at, float* out, int threads);

}  // namespace cutlayer
