// The inner loops of `ems`, once for each instruction set, and what they work on.
#pragma once
#include "ems/ems.hpp"

namespace cutlayer {

constexpr size_t kSlack = 64;               // bytes that loops may read and write beyond the end of a padded plane
constexpr size_t kKeyBatch = 256;           // keys that are made at a time
constexpr size_t kHistograms = 8;           // copies of a histogram, updated in turn
constexpr size_t kLookupWords = 64;         // words of a table that one permutation looks up: a round
constexpr size_t kMaxLookups = 7;           // rounds; in larger tables a gather is faster
constexpr size_t kMaxComparedSymbols = 20;  // symbols; with more, a gather is faster than comparing bounds
constexpr size_t kVectorLanes = 3;          // lanes from which a vector pays
constexpr size_t kCells = 128;              // cells of a class, each of kCellSlots consecutive slots
constexpr size_t kCellSlots = kScale / kCells;
constexpr uint64_t kCountUnit = uint64_t(1) << 40;  // count and sum in one word: count in the upper bits, sum below

// A symbol for the decoder of a single lane: its frequency, its first slot, and what it adds to the prediction of the
// element on its right.
struct LaneCell {
  uint16_t frequency, start;
  int16_t right;
  uint8_t symbol, several;  // several: the cell has more than one symbol, of which this is the first
};

// Tables for a single lane, whose every step waits for the one before: small enough for the first-level cache.
struct LaneTables {
  size_t symbols;
  int origin;                      // what the constant adds to the index into `cells_of`
  std::vector<uint16_t> cells_of;  // by prediction before shift and clamping: the first cell of its class
  std::vector<LaneCell> cells, exact;  // by class and slot; by class and symbol
};

// A rANS block while it is decoded. Levels of lanes are interleaved: all lanes' first levels, then all second ones.
struct DecoderState {
  uint32_t state[kLanes];
  uint32_t active;               // lanes that still have elements, one bit each
  const uint16_t *words, *end;   // 64 words beyond the end may be read
  const uint16_t* class_of;      // the class of each prediction
  const uint8_t* twice_class;    // the same times two, as bytes
  const uint32_t* slots;         // 2^11 for each class: bias << 20 | (frequency - 1) << 8 | symbol
  const uint16_t (*bounds)[kMaxClasses];  // where in each class the symbols 1, 2, ... begin
  size_t symbols;
  unsigned level_shift, prediction_shift;
  const LaneTables* lane;        // null unless there is a single lane
};

// One symbol of a class for the encoder. state / frequency is the high half of 2 * state * inverse.
struct EncoderSymbol {
  uint64_t inverse;
  uint32_t full;  // states from here on first emit a word; 0 for a symbol of frequency 2^11, which never does
  uint16_t frequency, before;
};

// All symbols by class and level, in several forms: for one lane at a time; packed (before << 16 | frequency) for gathers,
// and the same by context and level; and as words in whole rounds for permutations.
struct EncoderTables {
  size_t levels;  // symbols of a class
  std::vector<EncoderSymbol> symbols;
  std::vector<uint32_t> packed, by_context;
  std::vector<uint16_t> frequency, before;
  uint16_t base[kPredictions];  // where the symbols of each prediction's class begin
};

// Reconstruction values by activity and level, and their low and high halves as words in whole rounds.
struct ReconstructionTable {
  std::vector<float> values;
  std::vector<uint16_t> low, high;
};

// Planes of padded levels, one below the other with a row of zeros between them; and the same, shifted, from whose
// four neighbours the activity is computed.
struct LevelPlanes {
  const uint8_t *at, *shifted_at;
  size_t planes, height, width, up;  // up: from a row to the next
  Rows rows;
  unsigned shift, symbols, level_shift;  // shift: of the neighbours' sum, to the activity
  const uint8_t* plain;  // levels without padding; if set, the padded ones are not used
};

// A tile of steps: the bytes of all lanes of a step lie together.
constexpr size_t kTile = 64;
struct Tile {
  uint8_t contexts[kTile][kLanes], levels[kTile][kLanes];
};

// Planes whose elements all have the same weights. Planes are powers of two, of at most 64 elements, so that masks and
// offsets of neighbours are the same for every 64 elements.
struct SharedWeights {
  size_t terms;          // neighbours and parents that have a weight, and one more without if they are odd
  size_t back[8];        // how many elements before its own each of them is
  uint16_t pairs[4];     // their weights, two in a word
  uint8_t there[8][64];  // 255 where an element has this neighbour, else 0
};

struct EmsKernels {
  void (*levels)(const float* x, size_t n, float scale, unsigned n_levels, float mark_from, uint8_t* out);
  // Levels by stochastic rounding, with a random word for each element. Levels from n_levels on get the mark, n_levels.
  void (*stochastic_levels)(const float* x, size_t n, float scale, unsigned n_levels, const uint32_t* words,
                            uint8_t* out);
  // The same without a limit to levels, which take the signs of their elements.
  void (*stochastic_tops)(const float* x, const uint32_t* words, size_t n, float scale, int64_t* out);
  // Dot products of five rows with one. Integers below 32, n < 2^22.
  void (*dots5)(const uint8_t* a, const uint8_t* b, size_t n, uint32_t* out);
  double (*energy)(const float* x, size_t n);
  // Rotates the plane of two rows: p and q become c p - s q and s p + c q.
  void (*plane_rotation)(double* p, double* q, size_t n, double c, double s);
  // The smallest and the largest of n numbers.
  void (*range)(const float* x, size_t n, float* lowest, float* highest);
  size_t (*count)(const uint8_t* p, size_t n, uint8_t value);
  // Of up to 64 elements: which are coded with a sign, that is, neither 0 nor the mark; and which of these are negative, one
  // bit each without gaps.
  uint64_t (*sign_bits)(const float* x, const uint8_t* levels, size_t n, uint8_t mark, uint64_t* negative);
  // n predictions from padded levels; `up` is the pitch. Up to kSlack more are read and written.
  void (*predict)(const uint8_t* at, size_t n, size_t up, const int8_t* weights, size_t parents,
                  const uint8_t* const* parent_at, const int8_t* parent, unsigned prediction_shift, uint8_t* out);
  // Predictions of a plane without padding; null for instruction sets that do not have it.
  void (*predict_plane)(const uint8_t* plane, size_t area, size_t width, const int8_t* weights, size_t parents,
                        const uint8_t* const* parent_at, const int8_t* parent, unsigned level_shift,
                        unsigned prediction_shift, uint8_t* out);
  // n predictions, a multiple of 64, from levels without padding, and a constant for each.
  void (*predict_shared)(const uint8_t* levels, size_t n, const SharedWeights& shared, const int8_t* constants,
                         unsigned prediction_shift, uint8_t* out);
  // Adds to the histograms of (prediction, level) pairs.
  void (*count_pairs)(const uint8_t* predicted, const uint8_t* levels, size_t n, size_t symbols, uint32_t* bins);
  // Elements from planes, by activity and level; elements from levels alone. Elements are never padded.
  void (*dequantize)(const LevelPlanes& planes, const ReconstructionTable& table, float* out);
  void (*dequantize_levels)(const uint8_t* levels, size_t n, const ReconstructionTable& table, float* out);
  // Counts and sums of magnitudes by activity and level, and their squares unless null; and squared differences of magnitudes from a table, except
  // where that is -1 (top values).
  void (*level_sums)(const LevelPlanes& planes, const uint8_t* levels, const float* x, float scale, uint64_t* sums,
                     size_t bins, uint64_t* squares);
  uint64_t (*squared_differences)(const LevelPlanes& planes, const float* x, float scale,
                                  const std::vector<int16_t>& table);
  // Whether up to kMaxComparedSymbols symbols are found by comparison with bounds, without slots.
  bool compares;
  // Decodes one row of n elements in all lanes; false when words run out. For 1, 16 or 32 interleaved lanes; `up` is in
  // elements.
  bool (*decode_row[3])(DecoderState& block, uint8_t* at, size_t n, size_t up, const int8_t* weights, size_t parents,
                        const uint8_t* const* parent_at, const int8_t* parent);
  // Encodes n steps of a tile backwards, writes words before `word`, and gives the first word. The last lane has only
  // `last` steps.
  uint16_t* (*encode_tile)(const Tile& tile, size_t n, size_t lanes, size_t last, const EncoderTables& code,
                           uint32_t* state, uint16_t* word);
  // Byte transpose: n bytes of each lane, `stride` apart, into a tile; and a tile back into the lanes.
  void (*gather_lanes)(const uint8_t* from, size_t n, size_t stride, size_t lanes, uint8_t (*to)[kLanes]);
  void (*scatter_lanes)(const uint8_t (*from)[kLanes], size_t n, uint8_t* to, size_t stride, size_t lanes);
};
extern const EmsKernels ems_generic;
#ifdef CUTLAYER_X86
extern const EmsKernels ems_avx2;
extern const EmsKernels ems_avx512;
#endif
// The kernels for the instruction set that `kernels()` has chosen.
const EmsKernels& ems_kernels();

}  // namespace cutlayer
