// The hot loops, once for each instruction set. Everything here works on plain buffers, one thread at a
// time; who calls it (select, encode, decode, choose) splits the work and owns the memory.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cutlayer {

constexpr size_t kBlock = 64;              // elements handled together: one bit each in a 64-bit word
constexpr uint32_t kNever = 0x7fffffffu;   // a threshold above the magnitude of every finite float
constexpr uint32_t kMaxFinite = 0x7f7fffffu;
constexpr size_t kSpan = 1024;             // elements or random words made at a time

enum class Values : int { f32 = 0, f16 = 1, bf16 = 2 };

inline size_t value_size(Values kind) { return kind == Values::f32 ? 4 : 2; }
inline size_t bit_bytes(size_t n, unsigned width) { return (n * width + 7) / 8; }

struct Scan {
  uint64_t above = 0;      // elements with magnitude > hi
  uint64_t collected = 0;  // candidates found with lo < magnitude <= hi (may exceed the room for them)
  uint32_t max_bits = 0;   // largest magnitude, as bits: NaN and infinity show here
  bool negative = false;
};

struct Range {
  float lo, hi;
  uint32_t max_bits;
};

// What makes an element a top value within one chunk: magnitude bits >= t, except that only the first
// `keep_ties` of the `ties` elements that equal t count.
struct Cut {
  uint32_t t;
  uint64_t ties;
  uint64_t keep_ties;
};

struct MsCode {
  unsigned bits;
  bool nearest;
  bool is_signed;
  double topmin;
  uint32_t levels[6];  // for bits <= 3: smallest magnitude of levels 1 .. 2^bits - 2
};

struct Kernels {
  const char* name;
  // One read: counts and collects around a bracket, and looks for negative and non-finite values.
  Scan (*scan)(const float* x, size_t n, uint32_t lo, uint32_t hi, uint32_t* room, size_t capacity);
  Range (*range)(const float* x, size_t n);
  uint64_t (*count_ge)(const float* x, size_t n, uint32_t t);
  uint64_t (*words_ge)(const uint32_t* words, size_t n, uint32_t least);
  // Bit i of `keep` is 1 where element i is a top value.
  void (*top_mask)(const float* x, size_t n, const Cut& cut, uint64_t* keep);
  // Writes the bit stream; stores the top values, at most up to `end`. Gives the end of what it would store
  // if there were room: another one than `end` only if the data have changed since they were counted.
  uint8_t* (*ms_pack)(const float* x, size_t n, const Cut& cut, const MsCode& code, uint8_t* mask,
                      uint8_t* values, uint8_t* end, Values kind);
  void (*qu_pack)(const float* x, size_t n, double lo, double scale, unsigned bits, bool stochastic,
                  uint64_t seed, uint64_t first, uint8_t* out);
  // Values of the marked elements, times scale.
  void (*gather)(const float* x, size_t n, const uint64_t* keep, float scale, uint8_t* values,
                 Values kind);
  // Word i of the stream for i in first .. first + n - 1; first is any index.
  void (*random)(uint64_t seed, uint32_t stream, uint32_t section, uint64_t first, size_t n, uint32_t* out);
  // `keep` holds the top elements of n. They are replaced by those among them that are in `top_set` (a bit for
  // each top element in order, this chunk's from `top_at` on), and those among the others in `other_set`.
  void (*chosen)(uint64_t* keep, size_t n, const uint64_t* top_set, uint64_t top_at, const uint64_t* other_set,
                 uint64_t other_at);
  // Decoding. `stream`: write past the caches (`out` is then aligned to 64 bytes). Up to `end` may be
  // read. `table` has 2^width entries, for width <= 8.
  void (*table_unpack)(const uint8_t* in, const uint8_t* end, size_t n, unsigned width, const float* table,
                       float* out, bool stream);
  void (*qu_unpack)(const uint8_t* in, size_t n, unsigned bits, double lo, double delta, float* out);
  // `values` starts at the first value of this chunk; the caller has counted the marks.
  void (*ms_unpack)(const uint8_t* in, const uint8_t* end, size_t n, unsigned bits, bool is_signed, double topmin,
                    const float* table, const uint8_t* values, Values kind, float* out, bool stream);
  void (*mask_unpack)(const uint8_t* in, size_t n, const uint8_t* values, Values kind, float* out,
                      bool stream);
  // How many codes have their low `bits` bits all set.
  uint64_t (*count_marks)(const uint8_t* in, size_t n, unsigned width, unsigned bits);
};

#define CUTLAYER_TABLE(ns)                                                                          \
  {                                                                                                 \
    #ns, ns::scan, ns::range, ns::count_ge, ns::words_ge, ns::top_mask, ns::ms_pack, ns::qu_pack,     \
        ns::gather, ns::random_words, ns::chosen, ns::table_unpack, ns::qu_unpack, ns::ms_unpack,    \
        ns::mask_unpack, ns::count_marks                                                             \
  }

extern const Kernels generic_kernels;
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define CUTLAYER_X86 1
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
#endif

// The best set that this processor runs; `force` picks one by name (for tests), null for the best.
const Kernels& kernels();
bool force_kernels(const char* name);

}  // namespace cutlayer
