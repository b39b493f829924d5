// Blocks of lanes: interleaved range coding (rANS) of levels.
#include <cstring>

#include "ems.hpp"
#include "parallel.hpp"

namespace cutlayer {
namespace {

constexpr size_t kTile = 64;  // steps of all lanes that are turned at a time

// What coding a symbol needs: the quotient by its frequency is the high half of 2 * state * inverse.
struct Symbol {
  uint64_t inverse;
  uint32_t full;  // states from here on give a word away; the one of frequency 2^12 never does
  uint16_t frequency, before;
};

std::vector<Symbol> symbols_of(const EmsTables& tables) {
  std::vector<Symbol> result(tables.classes * tables.symbols);
  for (size_t c = 0; c < tables.classes; ++c) {
    uint32_t before = 0;
    for (size_t s = 0; s < tables.symbols; ++s) {
      const uint32_t f = uint32_t(tables.frequencies[c * tables.symbols + s]);
      Symbol& symbol = result[c * tables.symbols + s];
      symbol = {f ? ((uint64_t(1) << 63) + f - 1) / f : 0, f < 4096 ? f << 20 : 0, uint16_t(f), uint16_t(before)};
      before += f;
    }
  }
  return result;
}

std::string encode_block(const uint8_t* levels, const uint8_t* contexts, const EmsShape& shape, const EmsTables& tables,
                         const std::vector<Symbol>& symbols, size_t block) {
  const size_t first = block * kLanes * shape.lane, lanes = std::min(kLanes, shape.lanes() - block * kLanes);
  const size_t elements = std::min(shape.d - first, lanes * shape.lane);
  uint16_t base[kFine];
  for (size_t p = 0; p < kFine; ++p) base[p] = uint16_t(tables.class_of[p] * tables.symbols);
  uint32_t state[kLanes];
  for (auto& s : state) s = kLowState;
  // Coding runs backwards, so that decoding runs forwards; words are written from the end.
  std::vector<uint16_t> room(elements + 1);
  uint16_t* word = room.data() + room.size();
  uint16_t tile[kTile][kLanes];
  for (size_t end = shape.lane; end > 0;) {
    const size_t start = (end - 1) / kTile * kTile, n = end - start;
    size_t length[kLanes];  // steps of this tile that a lane has
    for (size_t l = 0; l < lanes; ++l) {
      const size_t at = first + l * shape.lane + start;
      length[l] = at < shape.d ? std::min(n, shape.d - at) : 0;
      for (size_t i = 0; i < length[l]; ++i) tile[i][l] = uint16_t(base[contexts[at + i]] + levels[at + i]);
    }
    // Only the last lane can be shorter than the others.
    for (size_t i = n; i-- > 0;)
      for (size_t l = i < length[lanes - 1] ? lanes : lanes - 1; l-- > 0;) {
        const Symbol& symbol = symbols[tile[i][l]];
        uint32_t s = state[l];
        const bool full = s >= symbol.full && symbol.full;
        word[-1] = uint16_t(s);
        word -= full;
        s = full ? s >> 16 : s;
        const uint32_t q = uint32_t((static_cast<unsigned __int128>(uint64_t(s) * 2) * symbol.inverse) >> 64);
        state[l] = s + q * (4096u - symbol.frequency) + symbol.before;
      }
    end = start;
  }
  const size_t words = size_t(room.data() + room.size() - word);
  std::string out(4 * lanes + 2 * words, '\0');
  std::memcpy(out.data(), state, 4 * lanes);
  std::memcpy(out.data() + 4 * lanes, word, 2 * words);
  return out;
}

// Decodes one block into `out`, the whole section's levels.
bool decode_block(const uint8_t* in, size_t words, const EmsShape& shape, const EmsModel& model, const uint32_t* base,
                  const uint32_t* slots, size_t block, uint8_t* out) {
  const size_t first = block * kLanes * shape.lane, lanes = std::min(kLanes, shape.lanes() - block * kLanes);
  if (words < 2 * lanes) return false;
  EmsBlock b;
  for (auto& s : b.state) s = kLowState;
  std::memcpy(b.state, in, 4 * lanes);
  for (uint32_t s : b.state)
    if (s < kLowState) return false;
  std::vector<uint16_t> stream(words - 2 * lanes + 64);
  std::memcpy(stream.data(), in + 4 * lanes, 2 * (words - 2 * lanes));
  b.words = stream.data();
  b.end = stream.data() + (words - 2 * lanes);
  b.base = base;
  b.slots = slots;
  b.coarse = model.coarse;
  b.grain = model.grain;
  const auto& kernel = ems_kernels();
  const size_t pitch = shape.pitch(), framed = shape.framed();
  // One sample of every lane, interleaved, in frames of zeros.
  std::vector<uint8_t> room((shape.channels * framed + 1) * kLanes);
  auto plane = [&](size_t c) { return room.data() + (c * framed + shape.first()) * kLanes; };
  // Only the last lane of a section may be shorter than the others.
  const size_t last = std::min(shape.lane, shape.d - first - (lanes - 1) * shape.lane);
  const uint32_t all = lanes == kLanes ? ~0u : (1u << lanes) - 1, without = all & ~(1u << (lanes - 1));
  for (size_t step = 0; step < shape.lane; step += shape.sample())
    for (size_t c = 0; c < shape.channels; ++c) {
      const size_t row = model.rows > 1 ? c : 0;
      const int8_t* weights = model.weights + 5 * row;
      const int8_t* parent = model.parent + row * model.parents;
      for (size_t y = 0; y < shape.height; ++y) {
        const size_t at = step + (c * shape.height + y) * shape.width;
        uint8_t* here = plane(c) + y * pitch * kLanes;
        for (size_t x = 0; x < shape.width;) {
          b.active = at + x < last ? all : without;
          if (!b.active) break;
          const size_t n = at + x < last ? std::min(shape.width - x, last - at - x) : shape.width - x;
          const uint8_t* parent_at[4] = {};
          for (size_t j = 0; j < model.parents; ++j) {
            const uint8_t back = model.distance[row * model.parents + j];
            if (back) parent_at[j] = plane(c - back) + (y * pitch + x) * kLanes;
          }
          if (!kernel.decode_row(b, here + x * kLanes, n, pitch, weights, model.parents, parent_at, parent))
            return false;
          x += n;
        }
        const size_t full = last > at ? lanes : lanes - 1;
        uint8_t* to = out + first + at;
        if (last > at && last < at + shape.width) {  // the last lane ends within this row
          kernel.spread(here, shape.width, to, shape.lane, lanes - 1);
          for (size_t x = 0; x < last - at; ++x) to[(lanes - 1) * shape.lane + x] = here[x * kLanes + lanes - 1];
        } else {
          kernel.spread(here, shape.width, to, shape.lane, full);
        }
      }
    }
  for (uint32_t s : b.state)
    if (s != kLowState) return false;
  return b.words == b.end;
}

}  // namespace

std::vector<std::string> ems_encode(const uint8_t* levels, const uint8_t* contexts, const EmsShape& shape,
                                    const EmsTables& tables, int threads) {
  const auto symbols = symbols_of(tables);
  std::vector<std::string> blocks(shape.blocks());
  parallel(threads, blocks.size(), [&](size_t b) {
    blocks[b] = encode_block(levels, contexts, shape, tables, symbols, b);
  });
  return blocks;
}

bool ems_decode(const uint8_t* in, const std::vector<uint64_t>& words, const EmsShape& shape, unsigned most,
                const EmsModel& model, const EmsTables& tables, uint8_t* out, int threads) {
  std::vector<uint32_t> slots(tables.classes << kScaleBits);
  for (size_t c = 0; c < tables.classes; ++c) {
    uint32_t at = 0;
    for (uint32_t s = 0; s <= most; ++s) {
      const uint32_t f = uint32_t(tables.frequencies[c * tables.symbols + s]);
      for (uint32_t i = 0; i < f; ++i, ++at) slots[(c << kScaleBits) + at] = i << 20 | (f - 1) << 8 | s;
    }
  }
  uint32_t base[kFine];
  for (size_t p = 0; p < kFine; ++p) base[p] = uint32_t(tables.class_of[p]) << kScaleBits;
  std::vector<size_t> starts(words.size());
  for (size_t b = 1; b < starts.size(); ++b) starts[b] = starts[b - 1] + 2 * words[b - 1];
  std::vector<uint8_t> good(words.size());
  parallel(threads, words.size(), [&](size_t b) {
    good[b] = decode_block(in + starts[b], words[b], shape, model, base, slots.data(), b, out);
  });
  return std::all_of(good.begin(), good.end(), [](uint8_t g) { return g; });
}

}  // namespace cutlayer
