// The codec `ems` on elements (FORMAT.md, "ems"): levels, their contexts and statistics, coded blocks, and back.
#pragma once
#include <string>
#include <vector>

#include "sparse/topk.hpp"

namespace cutlayer {

constexpr size_t kLanes = 32;        // coded in step, in one block
constexpr size_t kFine = 128;        // values of a quantized prediction
constexpr size_t kNeighbours = 4;
constexpr unsigned kScaleBits = 11;  // frequencies of a class add up to 2^11
constexpr uint32_t kScale = 1u << kScaleBits;
constexpr uint32_t kLowState = 1u << 16;
constexpr size_t kSlack = 64;        // bytes that loops may touch beyond the end of a framed plane
constexpr size_t kKeys = 256;        // worked on at a time
constexpr size_t kTables = 8;        // of counts, used in turn
constexpr size_t kRound = 64;        // words of a table that one instruction looks up
constexpr size_t kFewRounds = 7;     // beyond, gathering is faster
constexpr size_t kFewSymbols = 20;   // likewise
constexpr size_t kMostClasses = 32;  // room for them; there are 24 at most
constexpr uint64_t kOne = uint64_t(1) << 40;  // one element in a word whose low bits add up parts of steps

// d elements as samples of planes of rows. Only the last row may be short, where a sample is one row.
struct EmsShape {
  size_t d, channels, height, width, lane;  // lane: elements that a lane codes
  size_t sample() const { return channels * height * width; }
  size_t samples() const { return (d + sample() - 1) / sample(); }
  size_t lanes() const { return (d + lane - 1) / lane; }
  size_t blocks() const { return (lanes() + kLanes - 1) / kLanes; }
  // Planes are worked on in a frame of zeros, where neighbours beyond the border are found: a row above, a row
  // below, and one column that ends each row and precedes the next.
  size_t pitch() const { return width + 1; }
  size_t framed() const { return (height + 2) * pitch() + 1; }
  size_t first() const { return pitch() + 1; }
  // Whether 64 elements are always whole rows of one plane, or part of one row.
  bool even() const { return height * width % 64 == 0 && (width % 64 == 0 || 64 % width == 0) && d % sample() == 0; }
};

// Rows of each plane that count; the others are there for their neighbours.
struct EmsRows {
  size_t first, last;
};

struct EmsModel {
  size_t rows, parents;
  const int8_t* weights;    // rows x 5: constant, left, above, above left, above right
  const uint8_t* distance;  // rows x parents; 0 for none
  const int8_t* parent;
  unsigned coarse, grain;
};

// What a fit looks at: every so manyth sample, and place in the rows that count, and how many places of a channel that makes.
struct EmsFit {
  EmsRows rows;
  size_t stride, thin, places;
  unsigned coarse;
  bool own;
};

// Frequencies of `symbols` symbols in each class, and the class of each prediction.
struct EmsTables {
  size_t classes, symbols;
  const uint8_t* class_of;
  const int64_t* frequencies;
};

// One block while it is decoded: states and words in, levels of lanes (interleaved) out.
struct EmsBlock {
  uint32_t state[kLanes];
  uint32_t active;               // lanes that still have elements, one bit each
  const uint16_t *words, *end;   // 64 words beyond the end may be read
  const uint16_t* class_of;      // the class of each prediction
  const uint32_t* slots;         // of each class 2^11: bias << 20 | (frequency - 1) << 8 | symbol
  const uint16_t (*bounds)[kMostClasses];  // where in each class the symbols 1, 2, ... begin
  size_t symbols;
  unsigned coarse, grain;
};

// What coding a symbol needs: the quotient by its frequency is the high half of 2 * state * inverse.
struct EmsSymbol {
  uint64_t inverse;
  uint32_t full;  // states from here on give a word away; the symbol that is certain never makes them
  uint16_t frequency, before;
};

// Symbols by class and level, three times: for one lane at a time, packed (before << 16 | frequency) for many, and
// as words in whole rounds.
struct EmsCode {
  std::vector<EmsSymbol> symbols;
  std::vector<uint32_t> packed;
  std::vector<uint16_t> frequency, before;
  uint16_t base[kFine];  // where each prediction's class begins
};

// Values by surroundings and level, and their halves as words in whole rounds.
struct EmsLookup {
  std::vector<float> values;
  std::vector<uint16_t> low, high;
};

// Planes of framed levels, one below the other, a row between them: the levels, coarser ones whose four neighbours add
// up to the surroundings, and the rows of each that count.
struct EmsPlanes {
  const uint8_t *at, *coarse_at;
  size_t planes, height, width, up;  // `up`: from a row to the next
  EmsRows rows;
  unsigned shift, symbols, coarse;
  const uint8_t* plain;  // levels without a frame, if they need none: then nothing is framed
};

// Steps of lanes, turned so that the lanes of a step lie together.
constexpr size_t kTile = 64;
struct EmsTile {
  uint8_t contexts[kTile][kLanes], levels[kTile][kLanes];
};

// The inner loops, once for each instruction set.
struct EmsKernels {
  void (*levels)(const float* x, size_t n, float scale, unsigned most, float mark_from, uint8_t* out);
  // Products of five rows with one, added up; of integers below 32, n < 2^22.
  void (*dots5)(const uint8_t* a, const uint8_t* b, size_t n, uint32_t* out);
  double (*energy)(const float* x, size_t n);
  size_t (*count)(const uint8_t* p, size_t n, uint8_t value);
  // n predictions from framed levels; `up` is one pitch. Up to kSlack more are read and written.
  void (*predict)(const uint8_t* at, size_t n, size_t up, const int8_t* weights, size_t parents,
                  const uint8_t* const* parent_at, const int8_t* parent, unsigned grain, uint8_t* out);
  // The same for a plane without a frame, where that is possible (`direct`) and worth it; else there is none.
  void (*predict_plane)(const uint8_t* plane, size_t area, size_t width, const int8_t* weights, size_t parents,
                        const uint8_t* const* parent_at, const int8_t* parent, unsigned coarse, unsigned grain,
                        uint8_t* out);
  void (*count_pairs)(const uint8_t* predicted, const uint8_t* levels, size_t n, size_t symbols, uint32_t* bins);
  // Planes looked up in a table by surroundings and level; plain levels; the sums of elements by these; and the
  // squared differences from a table of parts, top values (-1) left out. Elements have no frame.
  void (*rebuild)(const EmsPlanes& planes, const EmsLookup& table, float* out);
  void (*look_up)(const uint8_t* levels, size_t n, const EmsLookup& table, float* out);
  void (*sums)(const EmsPlanes& planes, const uint8_t* levels, const float* x, float scale, uint64_t* sums,
               size_t bins, uint64_t& squares);
  uint64_t (*differences)(const EmsPlanes& planes, const float* x, float scale, const std::vector<int16_t>& table);
  // One row of n elements in all lanes; false when words run out. Lanes are interleaved, 1, 8 or 32 of them;
  // `up` is in elements.
  bool (*decode_row[3])(EmsBlock& block, uint8_t* at, size_t n, size_t up, const int8_t* weights, size_t parents,
                     const uint8_t* const* parent_at, const int8_t* parent);
  // Codes the n last steps of a tile backwards, words before `word`, and gives the first word. The last lane
  // has only so many steps.
  uint16_t* (*encode_tile)(const EmsTile& tile, size_t n, size_t lanes, size_t last, const EmsCode& code,
                           uint32_t* state, uint16_t* word);
  // n steps of lanes that are `stride` apart into a tile's row.
  void (*gather)(const uint8_t* from, size_t n, size_t stride, size_t lanes, uint8_t (*to)[kLanes]);
  // n steps of a tile to where each lane's elements are.
  void (*spread)(const uint8_t (*from)[kLanes], size_t n, uint8_t* to, size_t stride, size_t lanes);
};
extern const EmsKernels ems_generic;
#ifdef CUTLAYER_X86
extern const EmsKernels ems_avx2;
extern const EmsKernels ems_avx512;
#endif
const EmsKernels& ems_kernels();

// Magnitudes from `mark_from` on get the level `most`.
void ems_quantize(const float* x, size_t d, float scale, unsigned most, float mark_from, uint8_t* out, int threads);
// Weights from these levels: one row of them, or, if `own`, one for each channel with so many parents.
void ems_fit_weights(const uint8_t* levels, const EmsShape& shape, const EmsFit& fit, size_t parents, int8_t* weights,
             uint8_t* distance, int8_t* parent, int threads);
double ems_energy(const float* x, size_t d, int threads);
void ems_quantize_evenly(const float* x, size_t d, double topmin, unsigned levels, bool nearest, uint8_t* out,
                      int threads);
// The bits of top values as they travel, and where they are.
void ems_top_values(const float* x, const Selection& top, size_t row, Values kind, int64_t* out, int64_t* where, int threads);
// Predictions, if all rows count, and how often each level comes with each.
void ems_contexts(const uint8_t* levels, const EmsShape& shape, EmsRows rows, const EmsModel& model, unsigned most,
                  uint8_t* out, int64_t* histogram, int threads);
void ems_level_sums(const float* x, const uint8_t* levels, const EmsShape& shape, EmsRows rows, float scale, unsigned most,
              size_t kinds, int64_t* out, int64_t* squares, int threads);
// The squared error, in parts of a step, of levels that are decoded by a table of kinds x (most + 1); -1 for top values.
uint64_t ems_squared_error(const float* x, const uint8_t* levels, const EmsShape& shape, float scale, unsigned most,
                   size_t kinds, const int64_t* table, int threads);
// So many rows of all channels of a sample, from `where` = (sample, first row) on; zeros beyond the planes.
void ems_gather_rows(const uint8_t* elements, size_t size, const EmsShape& shape, const int64_t* where, size_t strips,
                size_t rows, uint8_t* out, int threads);
// Classes with their frequencies from a histogram that is not empty: how many, and what they cost to code.
size_t ems_frequency_tables(const int64_t* histogram, size_t symbols, size_t most_classes, size_t worth, const int64_t* cost_of,
                  int64_t* starts, int64_t* frequencies, int64_t& cost);
std::vector<std::string> ems_rans_encode(const uint8_t* levels, const uint8_t* contexts, const EmsShape& shape,
                                    const EmsTables& tables, int threads);
bool ems_rans_decode(const uint8_t* in, const std::vector<uint64_t>& words, const EmsShape& shape,
                const EmsModel& model, const EmsTables& tables, uint8_t* out, int threads);
std::string ems_pack_bits(const int64_t* codes, size_t n, unsigned width);
bool ems_unpack_bits(const uint8_t* in, size_t n, unsigned width, int64_t* out);
std::string ems_pack_signs(const float* x, const uint8_t* levels, size_t d, uint8_t mark);
// Where each sample's top values and signs begin, and where the last ones end: one more than there are samples.
void ems_sample_offsets(const uint8_t* levels, const EmsShape& shape, unsigned most, bool is_signed, int64_t* tops,
                int64_t* signs, int threads);
void ems_dequantize(const uint8_t* levels, const EmsShape& shape, const float* table, size_t kinds, unsigned most,
                 const float* tops, const int64_t* tops_at, const uint8_t* signs, const int64_t* signs_at, float* out,
                 int threads);

}  // namespace cutlayer
