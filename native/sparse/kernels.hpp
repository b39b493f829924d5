// The inner loops of all codecs but `ems`, once for each instruction set. They work on plain buffers, in one thread.
// The callers (topk, sample, encode, decode) divide the work and own the memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/float16.hpp"
#include "common/isa.hpp"

namespace cutlayer {

constexpr size_t kBlock = 64;              // elements handled together: one bit for each in a 64-bit word
constexpr uint32_t kAboveAll = 0x7fffffffu;   // a threshold above the magnitude of every finite float
constexpr size_t kSpan = 1024;             // elements or random words that are made at a time

inline size_t bit_bytes(size_t n, unsigned width) { return (n * width + 7) / 8; }

// Two words, one bit of each for each element of a block.
struct Bits2 {
  uint64_t a, b;
};

struct Scan {
  uint64_t above = 0;      // elements with magnitude > hi
  uint64_t collected = 0;  // candidates found with lo < magnitude <= hi (may exceed the capacity)
  uint32_t max_bits = 0;   // largest magnitude, as bits; above kMaxFinite there is NaN or infinity
  bool negative = false;
};

struct Range {
  float lo, hi;
  uint32_t max_bits;
};

// The threshold of top values in one chunk: magnitude bits >= t. Of the `ties` elements that equal t, only the first
// `keep_ties` are top values.
struct Threshold {
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

// The code of `qu`: (x - lo) * scale, rounded. Single precision gives a code or one less: `next` has, for each code but
// the last, the smallest element of the next code, so that a comparison decides. Not for stochastic rounding, more than
// four bits, and ranges that single precision cannot hold.
struct QuCode {
  unsigned bits;
  bool stochastic, thresholds;
  uint64_t seed;
  double exact_lo, exact_scale;
  float lo, scale, half, next[16];
};

// Which elements of a chunk randomized top-k keeps: a bit for each top element in order, this chunk's from `top_at` to
// `top_end`, and the same for the others. One word behind the ends may be read.
struct Sampled {
  const uint64_t* top;
  uint64_t top_at, top_end;
  const uint64_t* others;
  uint64_t other_at, other_end;
};

struct Kernels {
  const char* name;
  // In one read: counts magnitudes above a bracket, collects those in it, finds negative and non-finite values.
  // `many`: expect more than one candidate among 64 elements.
  Scan (*scan)(const float* x, size_t n, uint32_t lo, uint32_t hi, bool many, uint32_t* buffer, size_t capacity);
  Range (*range)(const float* x, size_t n);
  uint64_t (*count_ge)(const float* x, size_t n, uint32_t t);
  uint64_t (*words_ge)(const uint32_t* words, size_t n, uint32_t least);
  // Which of 64 words are above `lo`, and which above `hi`.
  Bits2 (*words_above)(const uint32_t* words, uint32_t lo, uint32_t hi);
  // Bit i of `keep` is 1 where element i is a top value.
  void (*top_mask)(const float* x, size_t n, const Threshold& threshold, uint64_t* keep);
  // Writes the mask as a bit stream, and the top values up to `end`. Returns where the values would end without that
  // limit: not at `end` only if the data have changed since they were counted.
  uint8_t* (*ms_pack)(const float* x, size_t n, const Threshold& threshold, const MsCode& code, uint8_t* mask,
                      uint8_t* values, uint8_t* end, Values kind);
  void (*qu_pack)(const float* x, size_t n, const QuCode& code, uint64_t first, uint8_t* out);
  // The sparse codecs: the values of kept elements, as in ms_pack, and the mask of these, `keep`. For top-k; for
  // randomized top-k (null if the data have changed); for a mask that is given, with values multiplied by scale.
  uint8_t* (*top_pack)(const float* x, size_t n, const Threshold& threshold, uint64_t* keep, uint8_t* values,
                       uint8_t* end, Values kind);
  uint8_t* (*sampled_pack)(const float* x, size_t n, const Threshold& threshold, const Sampled& sampled, uint64_t* keep,
                           uint8_t* values, uint8_t* end, Values kind);
  uint8_t* (*marked_pack)(const float* x, size_t n, const uint64_t* keep, float scale, uint8_t* values, uint8_t* end,
                          Values kind);
  // Philox words of the indices first .. first + n - 1.
  void (*random)(uint64_t seed, uint32_t stream, uint32_t section, uint64_t first, size_t n, uint32_t* out);
  // Decoding. `stream`: use streaming stores (`out` is then aligned to 64 bytes). Input up to `end` may be read.
  // `table` has 2^width entries, width <= 8.
  void (*table_unpack)(const uint8_t* in, const uint8_t* end, size_t n, unsigned width, const float* table,
                       float* out, bool stream);
  void (*qu_unpack)(const uint8_t* in, size_t n, unsigned bits, double lo, double delta, float* out);
  // `values` starts at the first value of this chunk; the caller has counted the marks.
  void (*ms_unpack)(const uint8_t* in, const uint8_t* end, size_t n, unsigned bits, bool is_signed, double topmin,
                    const float* table, const uint8_t* values, Values kind, float* out, bool stream);
  void (*mask_unpack)(const uint8_t* in, const uint8_t* end, size_t n, const uint8_t* values, Values kind, float* out,
                      bool stream);
  // Counts the codes whose low `bits` bits are all ones.
  uint64_t (*count_marks)(const uint8_t* in, size_t n, unsigned width, unsigned bits);
};

#define CUTLAYER_TABLE(ns)                                                                                        \
  {                                                                                                               \
    #ns, ns::scan, ns::range, ns::count_ge, ns::words_ge, ns::words_above, ns::top_mask, ns::ms_pack, ns::qu_pack, ns::top_pack,     \
        ns::sampled_pack, ns::marked_pack, ns::random_words, ns::table_unpack, ns::qu_unpack, ns::ms_unpack,        \
        ns::mask_unpack, ns::count_marks                                                                           \
  }

extern const Kernels generic_kernels;
#ifdef CUTLAYER_X86
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
#endif
#ifdef CUTLAYER_NEON
extern const Kernels neon_kernels;
#endif

// The kernels in use: those for the best instruction set of this processor, unless another was chosen by name.
// force_kernels, for tests, comes before that choice; null ends it. False if the processor lacks the instruction set.
const Kernels& kernels();
std::vector<const Kernels*> available_kernels();
bool choose_kernels(const char* name);
bool force_kernels(const char* name);

}  // namespace cutlayer
