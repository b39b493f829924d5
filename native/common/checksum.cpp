#include "common/checksum.hpp"

#include <cstring>
#include <vector>

#include "common/isa.hpp"
#include "common/parallel.hpp"

#ifdef CUTLAYER_X86
#include <immintrin.h>
#endif
#ifdef CUTLAYER_NEON
#include <arm_acle.h>
#ifdef __linux__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#endif

namespace cutlayer {
namespace {

struct Tables {
  uint32_t t[8][256];
  Tables() {
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int b = 0; b < 8; ++b) c = (c >> 1) ^ (0xEDB88320u & (0u - (c & 1u)));
      t[0][i] = c;
    }
    for (int s = 1; s < 8; ++s)
      for (uint32_t i = 0; i < 256; ++i) t[s][i] = (t[s - 1][i] >> 8) ^ t[0][t[s - 1][i] & 255u];
  }
};

// Table-driven CRC, eight bytes a step (slicing-by-8). `c` is the inverted state.
uint32_t by_table(uint32_t c, const uint8_t* p, size_t n) {
  static const Tables tables;
  const auto& t = tables.t;
  for (; n >= 8; n -= 8, p += 8) {
    uint32_t a, b;
    std::memcpy(&a, p, 4);
    std::memcpy(&b, p + 4, 4);
    a ^= c;
    c = t[7][a & 255] ^ t[6][(a >> 8) & 255] ^ t[5][(a >> 16) & 255] ^ t[4][a >> 24] ^ t[3][b & 255] ^
        t[2][(b >> 8) & 255] ^ t[1][(b >> 16) & 255] ^ t[0][b >> 24];
  }
  for (; n; --n, ++p) c = (c >> 8) ^ t[0][(c ^ *p) & 255u];
  return c;
}

#ifdef CUTLAYER_NEON
// arm64 has an instruction for this polynomial, but for the very first processors.
__attribute__((target("+crc"))) uint32_t by_instruction(uint32_t c, const uint8_t* p, size_t n) {
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t v;
    std::memcpy(&v, p, 8);
    c = __crc32d(c, v);
  }
  for (; n; --n, ++p) c = __crc32b(c, *p);
  return c;
}

bool has_instruction() {
#ifdef __linux__
  return getauxval(AT_HWCAP) & HWCAP_CRC32;
#else
  return true;  // Apple's and Windows' arm64 have it
#endif
}
#endif

#ifdef CUTLAYER_X86
// Carry-less multiplication folds 64 bytes a step: each 128-bit lane is moved forward by x^512 (then
// x^128) modulo the polynomial, in the reflected bit order that this CRC uses. The last 16 bytes, which
// are congruent to the whole message, go through the table.
__attribute__((target("pclmul,sse4.1"))) uint32_t by_folding(uint32_t c, const uint8_t* p, size_t n) {
  auto load = [](const uint8_t* at) __attribute__((target("pclmul,sse4.1"))) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  };
  auto fold = [](__m128i v, __m128i by, __m128i next) __attribute__((target("pclmul,sse4.1"))) {
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(v, by, 0x00), _mm_clmulepi64_si128(v, by, 0x11)),
                         next);
  };
  const __m128i by512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);  // x^(512-32), x^(512+32)
  const __m128i by128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);  // x^(128-32), x^(128+32)
  __m128i a = _mm_xor_si128(load(p), _mm_cvtsi32_si128(int(c)));
  __m128i b = load(p + 16), e = load(p + 32), f = load(p + 48);
  for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
    a = fold(a, by512, load(p));
    b = fold(b, by512, load(p + 16));
    e = fold(e, by512, load(p + 32));
    f = fold(f, by512, load(p + 48));
  }
  a = fold(fold(fold(a, by128, b), by128, e), by128, f);
  for (; n >= 16; p += 16, n -= 16) a = fold(a, by128, load(p));
  uint8_t rest[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest), a);
  return by_table(by_table(0, rest, 16), p, n);
}
#endif

// a * b modulo the polynomial. Bit 31 is the coefficient of x^0.
uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; a; a <<= 1) {
    if (a >> 31) product ^= b;
    b = (b >> 1) ^ (0xEDB88320u & (0u - (b & 1u)));
  }
  return product;
}

// x^(8n) modulo the polynomial: the factor by which n more bytes advance a checksum.
uint32_t shift(size_t n) {
  uint32_t result = 1u << 31, square = 1u << 23;  // x^0, x^8
  for (; n; n >>= 1, square = multiply(square, square))
    if (n & 1) result = multiply(result, square);
  return result;
}

uint32_t crc32(const uint8_t* data, size_t n) {
#ifdef CUTLAYER_X86
  static const bool folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  if (folds && n >= 64) return ~by_folding(~0u, data, n);
#endif
#ifdef CUTLAYER_NEON
  static const bool has = has_instruction();
  if (has) return ~by_instruction(~0u, data, n);
#endif
  return ~by_table(~0u, data, n);
}

}  // namespace

uint32_t crc32(const uint8_t* data, size_t n, int threads) {
  constexpr size_t part = 1 << 20;
  if (threads <= 1 || n <= 2 * part) return crc32(data, n);
  const size_t count = (n + part - 1) / part;
  std::vector<uint32_t> parts(count);
  parallel(threads, count, [&](size_t i) { parts[i] = crc32(data + i * part, std::min(part, n - i * part)); });
  const uint32_t over_whole = shift(part), over_last = shift(n - (count - 1) * part);
  uint32_t crc = parts[0];
  for (size_t i = 1; i < count; ++i) crc = multiply(i + 1 < count ? over_whole : over_last, crc) ^ parts[i];
  return crc;
}

}  // namespace cutlayer
