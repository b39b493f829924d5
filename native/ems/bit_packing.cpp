// Bit packing: codes of a fixed width and sign bits as bit streams, from the least significant bit on.
#include <algorithm>

#include "ems/kernels.hpp"

namespace cutlayer {

std::string ems_pack_bits(const int64_t* codes, size_t n, unsigned width) {
  std::string out((n * width + 7) / 8, '\0');
  uint64_t word = 0;
  unsigned filled = 0;
  size_t at = 0;
  for (size_t i = 0; i < n; ++i) {
    word |= uint64_t(codes[i]) << filled;
    for (filled += width; filled >= 8; filled -= 8, word >>= 8) out[at++] = char(word);
  }
  if (filled) out[at] = char(word);
  return out;
}

bool ems_unpack_bits(const uint8_t* in, size_t n, unsigned width, int64_t* out) {
  uint64_t word = 0;
  unsigned filled = 0;
  const uint64_t mask = (uint64_t(1) << width) - 1;
  for (size_t i = 0; i < n; ++i) {
    for (; filled < width; filled += 8) word |= uint64_t(*in++) << filled;
    out[i] = int64_t(word & mask);
    word >>= width;
    filled -= width;
  }
  return word == 0;
}

std::string ems_pack_signs(const float* x, const uint8_t* levels, size_t d, uint8_t mark) {
  std::string out;
  uint64_t word = 0;
  unsigned filled = 0;
  for (size_t i = 0; i < d; i += 64) {
    uint64_t negative;
    const unsigned many = unsigned(__builtin_popcountll(
        ems_kernels().sign_bits(x + i, levels + i, std::min<size_t>(64, d - i), mark, &negative)));
    word |= negative << filled;
    if (filled + many < 64) {
      filled += many;
      continue;
    }
    for (unsigned b = 0; b < 8; ++b) out.push_back(char(word >> 8 * b));
    word = filled ? negative >> (64 - filled) : 0;
    filled = filled + many - 64;
  }
  for (unsigned b = 0; b < filled; b += 8) out.push_back(char(word >> b));
  return out;
}

}  // namespace cutlayer
