// Interleaved rANS: blocks of 32 lanes, each lane a coder of its own, that share one stream of words.
#include <cstring>
#include <memory>

#include "common/parallel.hpp"
#include "ems/kernels.hpp"

namespace cutlayer {
namespace {

EncoderTables code_of(const FrequencyTables& tables) {
  EncoderTables code;
  code.levels = tables.symbols;
  for (size_t c = 0; c < tables.classes; ++c) {
    uint32_t before = 0;
    for (size_t s = 0; s < tables.symbols; ++s) {
      const uint32_t f = uint32_t(tables.frequencies[c * tables.symbols + s]);
      code.symbols.push_back({f ? ((uint64_t(1) << 63) + f - 1) / f : 0, f < kScale ? f << (32 - kScaleBits) : 0,
                              uint16_t(f), uint16_t(before)});
      code.packed.push_back(before << 16 | f);
      code.frequency.push_back(uint16_t(f));
      code.before.push_back(uint16_t(before));
      before += f;
    }
  }
  const size_t rounds = (code.frequency.size() + kLookupWords - 1) / kLookupWords;
  code.frequency.resize(rounds * kLookupWords);
  code.before.resize(rounds * kLookupWords);
  code.by_context.resize(kPredictions * tables.symbols);
  for (size_t p = 0; p < kPredictions; ++p) {
    code.base[p] = uint16_t(tables.class_of[p] * tables.symbols);
    std::copy_n(code.packed.data() + code.base[p], tables.symbols, code.by_context.data() + p * tables.symbols);
  }
  return code;
}

// A single lane of n elements, without tiles: its state stays in a register.
uint16_t* encode_lane(const uint8_t* levels, const uint8_t* contexts, size_t n, const EncoderTables& code,
                      uint32_t& state, uint16_t* word) {
  uint32_t s = state;
  for (size_t i = n; i-- > 0;) {
    const EncoderSymbol& symbol = code.symbols[code.base[contexts[i]] + size_t(levels[i])];
    if (s >= symbol.full && symbol.full) {
      *--word = uint16_t(s);
      s >>= 16;
    }
    const uint32_t q = uint32_t((static_cast<unsigned __int128>(uint64_t(s) * 2) * symbol.inverse) >> 64);
    s += q * (kScale - symbol.frequency) + symbol.before;
  }
  state = s;
  return word;
}

std::string encode_block(const uint8_t* levels, const uint8_t* contexts, const SectionShape& shape,
                         const EncoderTables& code, size_t block) {
  const size_t first = block * kLanes * shape.lane, lanes = std::min(kLanes, shape.lanes() - block * kLanes);
  const size_t elements = std::min(shape.d - first, lanes * shape.lane);
  const size_t last = elements - (lanes - 1) * shape.lane;  // only the last lane can be shorter than the others
  uint32_t state[kLanes];
  for (auto& s : state) s = kLowState;
  // rANS encodes backwards and decodes forwards, so words are written from the end. The buffer is not cleared: most
  // of its pages are never touched.
  constexpr size_t kBefore = 8;  // words that a vector may write before the first one
  const std::unique_ptr<uint16_t[]> buffer(new uint16_t[kBefore + elements + 1]);
  uint16_t *const stop = buffer.get() + kBefore + elements + 1, *word = stop;
  const auto& kernel = ems_kernels();
  if (lanes == 1) word = encode_lane(levels + first, contexts + first, elements, code, state[0], word);
  Tile tile;
  for (size_t end = lanes == 1 ? 0 : shape.lane; end > 0;) {
    const size_t start = (end - 1) / kTile * kTile, n = end - start;
    const size_t rest = last > start ? std::min(n, last - start) : 0, at = first + start;
    const size_t whole = rest == n ? lanes : lanes - 1;
    kernel.gather_lanes(contexts + at, n, shape.lane, whole, tile.contexts);
    kernel.gather_lanes(levels + at, n, shape.lane, whole, tile.levels);
    for (size_t i = 0; whole < lanes && i < rest; ++i) {
      tile.contexts[i][lanes - 1] = contexts[at + (lanes - 1) * shape.lane + i];
      tile.levels[i][lanes - 1] = levels[at + (lanes - 1) * shape.lane + i];
    }
    word = kernel.encode_tile(tile, n, lanes, rest, code, state, word);
    end = start;
  }
  const size_t words = size_t(stop - word);
  std::string out(4 * lanes + 2 * words, '\0');
  std::memcpy(out.data(), state, 4 * lanes);
  std::memcpy(out.data() + 4 * lanes, word, 2 * words);
  return out;
}

// The decoding tables, in three forms: the symbol of each slot; the bounds between symbols, for vectors; and cells, for a
// single lane.
struct DecoderTables {
  size_t count;
  uint16_t class_of[kPredictions + 2];  // padded, since a gather reads 32 bits
  uint8_t twice_class[kPredictions];
  std::vector<uint32_t> slots;          // empty if no kernel needs it: it takes long to fill
  uint16_t bounds[kKeyBatch][kMaxClasses] = {};
  std::unique_ptr<LaneTables> lane;
  DecoderTables(const FrequencyTables& tables, const ContextModel& model, size_t lanes) : count(tables.symbols) {
    for (size_t p = 0; p < kPredictions; ++p) {
      class_of[p] = tables.class_of[p];
      twice_class[p] = uint8_t(2 * tables.class_of[p]);
    }
    if (lanes == 1 && model.rows == 1) lane = std::make_unique<LaneTables>(lane_tables(tables, model));
    const bool compared = lanes > 1 && ems_kernels().compares && count <= kMaxComparedSymbols;
    if (!lane && !compared) slots.resize(tables.classes << kScaleBits);
    for (size_t c = 0; c < tables.classes; ++c) {
      uint32_t at = 0;
      for (uint32_t s = 0; s < count; ++s) {
        const uint32_t f = uint32_t(tables.frequencies[c * count + s]);
        if (s) bounds[s - 1][c] = uint16_t(at);
        if (slots.empty()) at += f;
        else
          for (uint32_t i = 0; i < f; ++i, ++at) slots[(c << kScaleBits) + at] = i << 20 | (f - 1) << 8 | s;
      }
    }
  }

 private:
  static LaneTables lane_tables(const FrequencyTables& tables, const ContextModel& model) {
    LaneTables t;
    t.symbols = tables.symbols;
    const int most = int((tables.symbols - 1) >> model.level_shift);
    int low = model.weights[0], high = low;
    for (size_t i = 1; i < 5; ++i) (model.weights[i] < 0 ? low : high) += model.weights[i] * most;
    t.origin = model.weights[0] - low;
    t.cells_of.resize(size_t(high - low) + 1);
    for (int p = low; p <= high; ++p) {
      const int context = std::min(127, std::max(0, p >> model.prediction_shift));
      t.cells_of[size_t(p - low)] = uint16_t(tables.class_of[context] * kCells);
    }
    t.exact.resize(tables.classes * tables.symbols);
    t.cells.resize(tables.classes * kCells);
    for (size_t c = 0; c < tables.classes; ++c) {
      uint32_t at = 0;
      for (size_t s = 0; s < tables.symbols; ++s) {
        const uint32_t f = uint32_t(tables.frequencies[c * tables.symbols + s]);
        const LaneCell cell{uint16_t(f), uint16_t(at), int16_t(model.weights[1] * int(s >> model.level_shift)), uint8_t(s),
                            0};
        t.exact[c * tables.symbols + s] = cell;
        const uint32_t end = at + f;
        // A cell with several symbols names the first of them.
        if (f && at % kCellSlots) t.cells[c * kCells + at / kCellSlots].several = 1;
        for (uint32_t i = (at + kCellSlots - 1) / kCellSlots; i * kCellSlots < end; ++i) t.cells[c * kCells + i] = cell;
        at = end;
      }
    }
    return t;
  }
};

// Decodes one block into `out`, the levels of the whole section. Stride is the number of lanes in memory, of which some
// may be idle: a block of few lanes must not take the memory of 32.
template <size_t Stride>
bool decode_block(const uint8_t* in, size_t words, const SectionShape& shape, const ContextModel& model,
                  const DecoderTables& symbols, size_t block, uint8_t* out) {
  const size_t first = block * kLanes * shape.lane, lanes = std::min(kLanes, shape.lanes() - block * kLanes);
  if (words < 2 * lanes) return false;
  DecoderState b;
  for (auto& s : b.state) s = kLowState;
  std::memcpy(b.state, in, 4 * lanes);
  for (uint32_t s : b.state)
    if (s < kLowState) return false;
  std::vector<uint16_t> stream(words - 2 * lanes + 64);
  std::memcpy(stream.data(), in + 4 * lanes, 2 * (words - 2 * lanes));
  b.words = stream.data();
  b.end = stream.data() + (words - 2 * lanes);
  b.class_of = symbols.class_of;
  b.twice_class = symbols.twice_class;
  b.slots = symbols.slots.data();
  b.bounds = symbols.bounds;
  b.symbols = symbols.count;
  b.lane = symbols.lane.get();
  b.level_shift = model.level_shift;
  b.prediction_shift = model.prediction_shift;
  const auto& kernel = ems_kernels();
  const auto decode_row = kernel.decode_row[Stride == 1 ? 0 : Stride == 16 ? 1 : 2];
  // The current sample of every lane, interleaved and padded with zeros. Predictions need no row below.
  const size_t pitch = shape.pitch(), padded = (shape.height + 1) * pitch;
  std::vector<uint8_t> buffer((shape.channels * padded + 2) * Stride);
  auto plane = [&](size_t c) { return buffer.data() + (c * padded + shape.first()) * Stride; };
  // Only the last lane of a section can be shorter than the others.
  const size_t last = std::min(shape.lane, shape.d - first - (lanes - 1) * shape.lane);
  const uint32_t all = lanes == kLanes ? ~0u : (1u << lanes) - 1, without = all & ~(1u << (lanes - 1));
  // Steps are collected in a tile, so that each lane is written many elements at a time.
  uint8_t tile[kTile][kLanes];
  size_t filled = 0, done = 0;  // steps in the tile, and steps before them
  auto flush = [&] {
    const size_t rest = last > done ? std::min(filled, last - done) : 0;  // of the last lane
    const size_t whole = rest == filled ? lanes : lanes - 1;
    kernel.scatter_lanes(tile, filled, out + first + done, shape.lane, whole);
    for (size_t i = 0; whole < lanes && i < rest; ++i)
      out[first + (lanes - 1) * shape.lane + done + i] = tile[i][lanes - 1];
    done += filled;
    filled = 0;
  };
  for (size_t step = 0; step < shape.lane; step += shape.sample())
    for (size_t c = 0; c < shape.channels; ++c) {
      const size_t row = model.rows > 1 ? c : 0;
      const int8_t* weights = model.weights + 5 * row;
      const int8_t* parent = model.parent + row * model.parents;
      for (size_t y = 0; y < shape.height; ++y) {
        const size_t at = step + (c * shape.height + y) * shape.width;
        uint8_t* here = plane(c) + y * pitch * Stride;
        for (size_t x = 0; x < shape.width;) {
          b.active = at + x < last ? all : without;
          if (!b.active) break;
          const size_t n = at + x < last ? std::min(shape.width - x, last - at - x) : shape.width - x;
          const uint8_t* parent_at[4] = {};
          for (size_t j = 0; j < model.parents; ++j) {
            const uint8_t back = model.distance[row * model.parents + j];
            if (back) parent_at[j] = plane(c - back) + (y * pitch + x) * Stride;
          }
          if (!decode_row(b, here + x * Stride, n, pitch, weights, model.parents, parent_at, parent))
            return false;
          x += n;
        }
        if (Stride == 1) {  // a single lane needs no tile
          if (at < last) std::memcpy(out + first + at, here, std::min(shape.width, last - at));
          continue;
        }
        for (size_t x = 0; x < shape.width; ++x) {
          std::memcpy(tile[filled++], here + x * Stride, Stride);
          if (filled == kTile) flush();
        }
      }
    }
  if (Stride > 1) flush();
  for (uint32_t s : b.state)
    if (s != kLowState) return false;
  return b.words == b.end;
}

}  // namespace

std::vector<std::string> ems_rans_encode(const uint8_t* levels, const uint8_t* contexts, const SectionShape& shape,
                                         const FrequencyTables& tables, int threads) {
  const EncoderTables code = code_of(tables);
  std::vector<std::string> blocks(shape.blocks());
  parallel(threads, blocks.size(), [&](size_t b) {
    blocks[b] = encode_block(levels, contexts, shape, code, b);
  });
  return blocks;
}

bool ems_rans_decode(const uint8_t* in, const std::vector<uint64_t>& words, const SectionShape& shape,
                     const ContextModel& model, const FrequencyTables& tables, uint8_t* out, int threads) {
  const DecoderTables symbols(tables, model, shape.lanes());
  std::vector<size_t> starts(words.size());
  for (size_t b = 1; b < starts.size(); ++b) starts[b] = starts[b - 1] + 2 * words[b - 1];
  std::vector<uint8_t> good(words.size());
  parallel(threads, words.size(), [&](size_t b) {
    const size_t lanes = std::min(kLanes, shape.lanes() - b * kLanes);
    const bool some = lanes <= (tables.symbols <= kMaxComparedSymbols ? 16 : 8);
    const auto decode = shape.lanes() == 1 ? decode_block<1> : some ? decode_block<16> : decode_block<kLanes>;
    good[b] = decode(in + starts[b], words[b], shape, model, symbols, b, out);
  });
  return std::all_of(good.begin(), good.end(), [](uint8_t g) { return g; });
}

}  // namespace cutlayer
