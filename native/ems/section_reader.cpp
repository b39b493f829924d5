// Reads and checks sections (FORMAT.md, "ems"), and decodes them. The rules are those of entropy/section_reader.py, which
// reads a refused section again to say what is wrong.
#include <cmath>
#include <cstring>

#include "common/float16.hpp"
#include "ems/dct.hpp"
#include "ems/padded_planes.hpp"
#include "ems/section.hpp"

namespace cutlayer {
namespace {

struct Malformed {};

// Reads untrusted bytes from front to back; every read is checked.
struct ByteReader {
  const uint8_t *at, *end;
  const uint8_t* take(size_t n) {
    if (n > size_t(end - at)) throw Malformed();
    at += n;
    return at - n;
  }
  uint8_t byte() { return *take(1); }
  float number() {
    float v;
    std::memcpy(&v, take(4), 4);
    return v;
  }
  // In its shortest form, of at most six bytes, and at most `most`.
  uint64_t varint(uint64_t most) {
    uint64_t value = byte();
    if (value >= 0x80) {
      value &= 0x7f;
      unsigned shift = 7;
      uint8_t next;
      for (; (next = byte()) >= 0x80 && shift < 35; shift += 7) value |= uint64_t(next & 0x7f) << shift;
      value |= uint64_t(next) << shift;
      if (next == 0 || next >= 0x80) throw Malformed();
    }
    if (value > most) throw Malformed();
    return value;
  }
};

// Limits of what a section may hold: the largest value as bits of its type, and the largest step.
struct Limits {
  uint64_t bits;
  double step;
};

constexpr int kFloor = 0, kMean = 2, kStochastic = 3;
constexpr uint64_t kMaxSteps = uint64_t(1) << 23;  // the largest top value of stochastic rounding, in steps

unsigned length_of(uint64_t v) { return v ? 64 - unsigned(__builtin_clzll(v)) : 0; }

void read_points(ByteReader& in, unsigned levels, int rounding, double max_step, Points& points) {
  points.step = in.number();
  if (!(points.step > 0 && points.step < max_step)) throw Malformed();
  points.activities = rounding == kStochastic ? 1 : in.byte();
  if (points.activities != 1 && points.activities != kActivities) throw Malformed();
  const size_t n = points.activities * levels;
  points.offsets.assign(n, 0);
  if (rounding == kMean) std::memcpy(points.offsets.data(), in.take(n), n);
}

void read_model(ByteReader& in, size_t channels, OwnModel& model) {
  const unsigned kind = in.byte();
  const size_t parents = model.parents = in.byte();
  if (kind > 2 || parents > 4) throw Malformed();
  model.rows = kind ? channels : 1;
  model.shared = kind == 2;
  const size_t rows = model.rows, width = 5 + 2 * parents;
  const uint8_t* raw = in.take(model.shared ? width - 1 + rows : rows * width);
  model.weights.resize(5 * rows);
  model.distance.resize(parents * rows);
  model.parent.resize(parents * rows);
  for (size_t r = 0; r < rows; ++r) {
    uint8_t row[13];
    row[0] = model.shared ? raw[width - 1 + r] : raw[r * width];
    std::memcpy(row + 1, model.shared ? raw : raw + r * width + 1, width - 1);
    std::memcpy(model.weights.data() + 5 * r, row, 5);
    for (size_t j = 0; j < parents; ++j) {
      const bool before_all = row[5 + j] > r;
      if (before_all && !model.shared) throw Malformed();
      model.distance[r * parents + j] = before_all ? 0 : row[5 + j];
    }
    if (parents) std::memcpy(model.parent.data() + r * parents, row + 5 + parents, parents);
  }
}

void read_tables(ByteReader& in, size_t symbols, OwnTables& tables) {
  tables.classes = in.byte();
  tables.symbols = symbols;
  if (tables.classes < 1 || tables.classes > 24) throw Malformed();
  tables.starts[0] = 0;
  for (size_t c = 1; c < tables.classes; ++c) {
    tables.starts[c] = in.byte();
    if (tables.starts[c] <= tables.starts[c - 1] || tables.starts[c] >= int64_t(kPredictions)) throw Malformed();
  }
  tables.frequencies.resize(tables.classes * symbols);
  for (size_t c = 0; c < tables.classes; ++c) {
    int64_t rest = kScale;
    for (size_t s = 0; s + 1 < symbols; ++s)
      rest -= tables.frequencies[c * symbols + s] = int64_t(in.varint(kScale));
    if (rest < 0) throw Malformed();
    tables.frequencies[c * symbols + symbols - 1] = rest;
  }
  tables.number_classes();
}

// A section whose bytes were checked, and whose levels are decoded.
struct Section {
  SectionShape shape;
  bool is_signed = false;
  unsigned levels = 0;
  Points points;
  std::vector<float> table;  // activities x (levels + 1)
  Buffer<uint8_t> found;     // levels
  std::vector<float> tops;
  std::vector<uint8_t> signs;
  std::vector<int64_t> tops_at, signs_at;
  // Of a transform: its range and the transposed rotation; empty without one.
  float lowest = 0, highest = 0;
  std::vector<float> rotation;
};

void read_tops(ByteReader& in, const SectionHead& head, bool is_signed, Values values, bool stochastic, uint64_t most,
               std::vector<float>& tops) {
  const unsigned width = head.width + is_signed;
  const uint8_t* stream = in.take((head.tops * width + 7) / 8);
  std::vector<int64_t> raw(head.tops);
  if (!ems_unpack_bits(stream, head.tops, width, raw.data())) throw Malformed();
  if (stochastic && head.tops && head.low < head.levels) throw Malformed();
  tops.resize(head.tops);
  for (size_t i = 0; i < tops.size(); ++i) {
    const uint64_t bits = uint64_t(is_signed ? raw[i] >> 1 : raw[i]) + head.low;
    if (bits > most) throw Malformed();
    float v;
    if (stochastic) v = float(bits) * head.points.step;
    else v = values == Values::f16 ? from_half(uint16_t(bits)) : float_of(values == Values::f32 ? uint32_t(bits)
                                                                                              : uint32_t(bits) << 16);
    if (!finite(v)) throw Malformed();
    tops[i] = is_signed && (raw[i] & 1) ? -v : v;
  }
}

// One byte for each of n bits; the unused bits at the end must be 0.
void read_signs(ByteReader& in, size_t n, std::vector<uint8_t>& signs) {
  const uint8_t* bits = in.take((n + 7) / 8);
  if (n % 8 && bits[n / 8] >> n % 8) throw Malformed();
  signs.resize(n);
  for (size_t i = 0; i < n; ++i) signs[i] = bits[i / 8] >> i % 8 & 1;
}

void read_levels(ByteReader& in, const SectionHead& head, const SectionShape& shape, int threads, uint8_t* out) {
  if (!head.coded) {
    const unsigned width = bit_length(head.levels);
    const uint8_t* stream = in.take((shape.d * width + 7) / 8);
    std::vector<int64_t> codes(shape.d);
    if (!ems_unpack_bits(stream, shape.d, width, codes.data())) throw Malformed();
    for (size_t i = 0; i < shape.d; ++i) {
      if (codes[i] > int64_t(head.levels)) throw Malformed();
      out[i] = uint8_t(codes[i]);
    }
    return;
  }
  uint64_t total = 0;
  for (uint64_t words : head.words) total += words;
  const uint8_t* blocks = in.take(2 * total);
  if (!ems_rans_decode(blocks, head.words, shape, head.model.view(head.levels), head.tables.view(), out, threads))
    throw Malformed();
}

void set_table(const SectionHead& head, Values values, Section& section) {
  const size_t symbols = head.levels + 1, kinds = section.points.activities;
  section.table.assign(kinds * symbols, 0.0f);
  if (section.points.step > 0) {
    const float unit = section.points.step / 64.0f;
    for (size_t a = 0; a < kinds; ++a)
      for (size_t l = 0; l < head.levels; ++l)
        section.table[a * symbols + l] = float(64 * int(l) + section.points.offsets[a * head.levels + l]) * unit;
    return;
  }
  const uint32_t low = uint32_t(head.low);
  const double topmin = values == Values::f16 ? from_half(uint16_t(low)) : float_of(values == Values::f32 ? low
                                                                                                        : low << 16);
  for (size_t l = 0; l < head.levels; ++l) section.table[l] = float(double(l) * topmin / double(head.levels));
}

void read_section(ByteReader& in, const SectionShape& shape, const Reading& how, bool is_signed, const Limits& limits,
                  int threads, Section& section) {
  SectionHead head;
  const unsigned coding = in.byte();
  const bool stochastic = how.rounding == kStochastic;
  head.levels = in.byte();
  if (coding > 1 || head.levels < 1 || head.levels > how.max_levels) throw Malformed();
  const uint64_t most = stochastic ? kMaxSteps : limits.bits;
  head.tops = in.varint(shape.d);
  head.low = in.varint(most);
  head.width = in.byte();
  if ((head.tops == 0 && !stochastic) || head.width > length_of(most)) throw Malformed();
  if (how.rounding >= kMean) read_points(in, head.levels, how.rounding, limits.step, head.points);
  head.coded = coding == 1;
  if (head.coded) {
    read_model(in, shape.channels, head.model);
    read_tables(in, head.levels + 1, head.tables);
    // Each lane has a state of two words, and no element takes more than one word.
    for (size_t b = 0; b < shape.blocks(); ++b) head.words.push_back(in.varint(2 * shape.lanes() + shape.d));
  }
  section.shape = shape;
  section.is_signed = is_signed;
  section.levels = head.levels;
  section.points = head.points;
  read_tops(in, head, is_signed, how.values, stochastic, most, section.tops);
  threads = threads_for(shape.d, threads);
  section.found = Buffer<uint8_t>(shape.d);
  read_levels(in, head, shape, threads, section.found.data());
  section.tops_at.resize(shape.samples() + 1);
  section.signs_at.resize(shape.samples() + 1);
  ems_sample_offsets(section.found.data(), shape, head.levels, is_signed, section.tops_at.data(),
                     section.signs_at.data(), threads);
  if (uint64_t(section.tops_at.back()) != head.tops) throw Malformed();
  if (is_signed) read_signs(in, size_t(section.signs_at.back()), section.signs);
  if (in.at != in.end) throw Malformed();
  set_table(head, how.values, section);
}

void read_any_section(ByteReader in, const Reading& how, int threads, Section& section) {
  constexpr uint64_t finite_bits[3] = {0x7f7fffff, 0x7bff, 0x7f7f}, coefficient_bits[3] = {0x67800000, 0x7bff, 0x6780};
  const SectionShape& shape = how.shape;
  if (in.at == in.end || *in.at != 2)
    return read_section(in, shape, how, how.is_signed, {finite_bits[int(how.values)], 0x1p120}, threads, section);
  in.byte();
  const size_t channels = shape.channels;
  if (how.rounding != kMean || shape.height < 8 || shape.width < 8 || channels > 128 || shape.d % shape.sample())
    throw Malformed();
  section.lowest = in.number();
  section.highest = in.number();
  if (!(-HUGE_VALF < section.lowest && section.lowest <= section.highest && section.highest < HUGE_VALF))
    throw Malformed();
  const uint8_t* raw = in.take(2 * channels * channels);
  section.rotation.resize(channels * channels);
  for (size_t i = 0; i < channels * channels; ++i) {
    int16_t entry;
    std::memcpy(&entry, raw + 2 * i, 2);
    if (entry == -32768) throw Malformed();
    section.rotation[i % channels * channels + i / channels] = float(entry) / 32768.0f;
  }
  const size_t down = (shape.height + 7) / 8, across = (shape.width + 7) / 8, inner_channels = 64 * channels;
  SectionShape inner{shape.samples() * inner_channels * down * across, inner_channels, down, across, 0};
  inner.lane = std::max<size_t>(1, 8192 / inner.sample()) * inner.sample();
  read_section(in, inner, how, true, {coefficient_bits[int(how.values)], 0x1p90}, threads, section);
}

void write_elements(const Section& section, float* out, int threads) {
  ems_dequantize(section.found.data(), section.shape, section.table.data(), section.points.activities, section.levels,
                 section.tops.data(), section.tops_at.data(), section.is_signed ? section.signs.data() : nullptr,
                 section.signs_at.data(), out, threads_for(section.shape.d, threads));
}

}  // namespace

bool decode_sections(const std::vector<Payload>& payloads, int threads) {
  struct Place {
    ByteReader body;
    const Reading* how;
    float* out;
  };
  std::vector<Place> places;
  size_t elements = 0;
  try {
    for (const Payload& p : payloads) {
      if (p.how.rounding < kFloor || p.how.rounding > kStochastic) return false;
      ByteReader in{p.bytes, p.bytes + p.size};
      for (size_t r = 0; r < p.rows; ++r) {
        const size_t n = in.varint(p.size);
        const uint8_t* body = in.take(n);
        places.push_back({{body, body + n}, &p.how, p.out + r * p.how.shape.d});
      }
      if (in.at != in.end) return false;
      elements += p.rows * p.how.shape.d;
    }
  } catch (const Malformed&) {
    return false;
  }
  // All sections are checked before anything is written.
  const bool by_section = places.size() > 1;
  const int outer = by_section ? threads_for(elements, threads) : 1, inner = by_section ? 1 : threads;
  std::vector<Section> sections(places.size());
  try {
    parallel(outer, places.size(), [&](size_t i) {
      read_any_section(places[i].body, *places[i].how, inner, sections[i]);
    });
  } catch (const Malformed&) {
    return false;
  }
  parallel(outer, places.size(), [&](size_t i) {
    const Section& section = sections[i];
    float* out = places[i].out;
    if (section.rotation.empty()) return write_elements(section, out, inner);
    const SectionShape& shape = places[i].how->shape;
    Buffer<float> y(section.shape.d);
    write_elements(section, y.data(), inner);
    dct_inverse(y.data(), {shape.samples(), shape.channels, shape.height, shape.width}, section.rotation.data(),
                section.lowest, section.highest, out, threads_for(shape.d, inner, kThreadedCheap));
  });
  return true;
}

}  // namespace cutlayer
