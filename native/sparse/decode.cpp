#include "sparse/decode.hpp"

#include <atomic>
#include <cstring>

#include "common/parallel.hpp"
#include "common/float16.hpp"

namespace cutlayer {
namespace {

bool padded_with_zeros(const uint8_t* stream, size_t n, unsigned width) {
  const size_t used = n * width % 8;
  return used == 0 || (stream[bit_bytes(n, width) - 1] >> used) == 0;
}

// Whether to use streaming stores, which bypass the caches: for results larger than the caches, if aligned.
bool streams(const float* out, size_t rows, size_t d) {
  return rows * d * sizeof(float) >= (size_t(24) << 20) && reinterpret_cast<uintptr_t>(out) % 64 == 0 &&
         (rows == 1 || d % 16 == 0);
}

// The smallest and the largest magnitude of values, as bits of float32.
void extremes(const uint8_t* in, size_t n, Values kind, uint32_t& least, uint32_t& most) {
  uint32_t lo = ~0u, hi = 0;
  if (kind == Values::f32) {
    for (size_t i = 0; i < n; ++i) {
      uint32_t b;
      std::memcpy(&b, in + 4 * i, 4);
      b &= 0x7fffffffu;
      lo = b < lo ? b : lo;
      hi = b > hi ? b : hi;
    }
  } else {
    // In every format, magnitudes have the order of their bits.
    uint16_t l = 0xffff, h = 0;
    for (size_t i = 0; i < n; ++i) {
      uint16_t b;
      std::memcpy(&b, in + 2 * i, 2);
      b &= 0x7fffu;
      l = b < l ? b : l;
      h = b > h ? b : h;
    }
    lo = bits_of(kind == Values::f16 ? from_half(l) : from_bfloat(l));
    hi = bits_of(kind == Values::f16 ? from_half(h) : from_bfloat(h));
  }
  least = lo;
  most = hi;
}

// Prefix sums of marks: where each chunk's values start in its section. False unless every section has k marks.
bool prefix_marks(const uint8_t* in, size_t section, const Shape& shape, unsigned width, unsigned bits,
                  int threads, std::vector<uint64_t>& before) {
  const size_t chunks = shape.chunks();
  before.resize(shape.rows * chunks);
  // Below some megabytes counting is finished before a thread would have started.
  const bool worth = shape.rows * bit_bytes(shape.d, width) > size_t(4) << 20;
  parallel(worth ? threads : 1, before.size(), [&](size_t i) {
    before[i] = kernels().count_marks(in + i / chunks * section + i % chunks * kChunk / 8 * width,
                                      shape.length(i % chunks), width, bits);
  });
  for (size_t r = 0; r < shape.rows; ++r) {
    uint64_t sum = 0;
    for (size_t c = 0; c < chunks; ++c) {
      const uint64_t mine = before[r * chunks + c];
      before[r * chunks + c] = sum;
      sum += mine;
    }
    if (sum != shape.k) return false;
  }
  return true;
}

Fault keys_decode(const uint8_t* in, const Shape& shape, Values kind, float* out, int threads) {
  const size_t section = size_t(shape.k) * (4 + value_size(kind));
  for (size_t r = 0; r < shape.rows; ++r) {
    int64_t last = -1;
    for (size_t j = 0; j < shape.k; ++j) {
      uint32_t key;
      std::memcpy(&key, in + r * section + 4 * j, 4);
      if (int64_t(key) <= last || key >= shape.d) return Fault::key;
      last = key;
    }
  }
  const size_t chunks = shape.chunks();
  parallel(threads, shape.rows * chunks, [&](size_t i) {
    std::memset(out + i / chunks * shape.d + i % chunks * kChunk, 0, shape.length(i % chunks) * sizeof(float));
  });
  for (size_t r = 0; r < shape.rows; ++r)
    for (size_t j = 0; j < shape.k; ++j) {
      uint32_t key;
      std::memcpy(&key, in + r * section + 4 * j, 4);
      out[r * shape.d + key] =
          get_value(in + r * section + 4 * shape.k + j * value_size(kind), kind);
    }
  return Fault::none;
}

}  // namespace

Fault check_values(const uint8_t* in, size_t n, Values kind, int threads) {
  constexpr size_t piece = 4 * kChunk;
  std::atomic<bool> good{true};
  parallel(threads, (n + piece - 1) / piece, [&](size_t i) {
    uint32_t least, most;
    extremes(in + i * piece * value_size(kind), std::min(piece, n - i * piece), kind, least, most);
    if (most > kMaxFinite) good = false;
  });
  return good ? Fault::none : Fault::value;
}

Fault ms_decode(const uint8_t* in, Shape shape, unsigned bits, bool is_signed, Values kind, float* out,
                int threads) {
  const unsigned width = bits + (is_signed ? 1 : 0);
  const size_t mask_bytes = bit_bytes(shape.d, width), chunks = shape.chunks();
  const size_t section = mask_bytes + size_t(shape.k) * value_size(kind);
  const uint32_t full = (1u << bits) - 1;
  std::vector<double> topmin(shape.rows);
  for (size_t r = 0; r < shape.rows; ++r) {
    uint32_t least, most;
    extremes(in + r * section + mask_bytes, size_t(shape.k), kind, least, most);
    if (most > kMaxFinite) return Fault::value;
    if (!padded_with_zeros(in + r * section, shape.d, width)) return Fault::padding;
    topmin[r] = double(float_of(least));
  }
  std::vector<uint64_t> before;
  if (!prefix_marks(in, section, shape, width, bits, threads, before)) return Fault::marks;
  const bool stream = streams(out, shape.rows, shape.d);
  parallel(threads, before.size(), [&](size_t i) {
    const size_t r = i / chunks, c = i % chunks;
    float table[16] = {};  // used for up to three mask bits
    if (bits <= 3)
      for (uint32_t code = 0; code < 1u << width; ++code) {
        const uint32_t m = code & full;
        const float level = float(double(m) * topmin[r] / double(full));
        table[code] = (code > full && m) ? -level : level;
      }
    const uint8_t* at = in + r * section;
    kernels().ms_unpack(at + c * kChunk / 8 * width, in + shape.rows * section, shape.length(c), bits, is_signed,
                        topmin[r], table, at + mask_bytes + size_t(before[i]) * value_size(kind), kind,
                        out + r * shape.d + c * kChunk, stream);
  });
  return Fault::none;
}

Fault sparse_decode(const uint8_t* in, Shape shape, bool keys, Values kind, float* out, int threads) {
  const size_t where = keys ? size_t(shape.k) * 4 : bit_bytes(shape.d, 1), chunks = shape.chunks();
  const size_t section = where + size_t(shape.k) * value_size(kind);
  for (size_t r = 0; r < shape.rows; ++r) {
    if (check_values(in + r * section + where, size_t(shape.k), kind, threads) != Fault::none) return Fault::value;
    if (!keys && !padded_with_zeros(in + r * section, shape.d, 1)) return Fault::padding;
  }
  if (keys) return keys_decode(in, shape, kind, out, threads);
  std::vector<uint64_t> before;
  if (!prefix_marks(in, section, shape, 1, 1, threads, before)) return Fault::marks;
  const bool stream = streams(out, shape.rows, shape.d);
  parallel(threads, before.size(), [&](size_t i) {
    const uint8_t* at = in + i / chunks * section;
    kernels().mask_unpack(at + i % chunks * kChunk / 8, in + shape.rows * section, shape.length(i % chunks),
                          at + where + size_t(before[i]) * value_size(kind), kind,
                          out + i / chunks * shape.d + i % chunks * kChunk, stream);
  });
  return Fault::none;
}

Fault qu_decode(const uint8_t* in, size_t rows, size_t d, unsigned bits, const float* range, float* out,
                int threads) {
  const Shape shape{rows, d, 1};
  const size_t head = range ? 0 : 8, section = head + bit_bytes(d, bits), chunks = shape.chunks();
  std::vector<float> own(2 * rows);
  for (size_t r = 0; r < rows; ++r) {
    if (range) std::memcpy(&own[2 * r], range, 8);
    else std::memcpy(&own[2 * r], in + r * section, 8);
    if (!finite(own[2 * r]) || !finite(own[2 * r + 1]) || own[2 * r] > own[2 * r + 1]) return Fault::range;
    if (!padded_with_zeros(in + r * section + head, d, bits)) return Fault::padding;
  }
  const bool stream = streams(out, rows, d);
  parallel(threads, rows * chunks, [&](size_t i) {
    const size_t r = i / chunks, c = i % chunks;
    const double lo = own[2 * r], delta = (double(own[2 * r + 1]) - lo) / double((1u << bits) - 1);
    const uint8_t* at = in + r * section + head + c * kChunk / 8 * bits;
    float* to = out + r * d + c * kChunk;
    if (bits > 8) return kernels().qu_unpack(at, shape.length(c), bits, lo, delta, to);
    float table[256];
    for (size_t q = 0; q < size_t(1) << bits; ++q) table[q] = float(lo + double(q) * delta);
    kernels().table_unpack(at, in + rows * section, shape.length(c), bits, table, to, stream);
  });
  return Fault::none;
}

Fault km_decode(const uint8_t* in, size_t rows, size_t d, unsigned bits, float* out, int threads) {
  const size_t clusters = size_t(1) << bits, section = 4 * clusters + bit_bytes(d, bits);
  const bool stream = streams(out, rows, d);
  std::vector<float> tables(rows * clusters);
  for (size_t r = 0; r < rows; ++r) {  // all sections are checked before anything is written
    float* table = tables.data() + r * clusters;
    std::memcpy(table, in + r * section, 4 * clusters);
    for (size_t c = 0; c < clusters; ++c)
      if (!finite(table[c]) || (c && table[c] < table[c - 1])) return Fault::range;
    if (!padded_with_zeros(in + r * section + 4 * clusters, d, bits)) return Fault::padding;
  }
  parallel(threads, rows, [&](size_t r) {
    kernels().table_unpack(in + r * section + 4 * clusters, in + rows * section, d, bits, tables.data() + r * clusters,
                           out + r * d, stream);
  });
  return Fault::none;
}

}  // namespace cutlayer
