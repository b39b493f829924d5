// Conversion between float32 and float16 or bfloat16: to nearest, ties to even, as in PyTorch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cutlayer {

// The type in which values are stored in a frame: the parameter `values` of codecs.
enum class Values : int { f32 = 0, f16 = 1, bf16 = 2 };

inline size_t value_size(Values kind) { return kind == Values::f32 ? 4 : 2; }

constexpr uint32_t kMaxFinite = 0x7f7fffffu;  // the bits of the largest finite float32

static inline uint32_t bits_of(float v) {
  uint32_t b;
  std::memcpy(&b, &v, 4);
  return b;
}
static inline float float_of(uint32_t b) {
  float v;
  std::memcpy(&v, &b, 4);
  return v;
}

static inline uint16_t to_half(float v) {
  const uint32_t b = bits_of(v), sign = (b >> 16) & 0x8000u, a = b & 0x7fffffffu;
  if (a >= 0x47800000u) return uint16_t(sign | 0x7c00u);  // >= 65536: infinity, which the caller refuses
  if (a < 0x38800000u) {                                  // below the smallest normal: exact in units of 2^-24
    const float scaled = float_of(a) * 16777216.0f;       // a power of two: no rounding here
    const uint32_t whole = uint32_t(scaled);
    const float rest = scaled - float(whole);
    return uint16_t(sign | (whole + (rest > 0.5f || (rest == 0.5f && (whole & 1u)))));
  }
  const uint32_t rounded = a + 0x0fffu + ((a >> 13) & 1u);
  return uint16_t(sign | ((rounded - 0x38000000u) >> 13));
}

static inline float from_half(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3ffu;
  if (e == 31) return float_of(sign | 0x7f800000u | (m << 13));
  if (e == 0) {
    const float v = float(m) * 5.9604644775390625e-8f;  // 2^-24
    return float_of(sign | bits_of(v));
  }
  return float_of(sign | ((e + 112u) << 23) | (m << 13));
}

static inline uint16_t to_bfloat(float v) {
  const uint32_t b = bits_of(v);
  return uint16_t((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
static inline float from_bfloat(uint16_t h) { return float_of(uint32_t(h) << 16); }

static inline void put_value(uint8_t* at, Values kind, float v) {
  if (kind == Values::f32) {
    std::memcpy(at, &v, 4);
  } else {
    const uint16_t h = kind == Values::f16 ? to_half(v) : to_bfloat(v);
    std::memcpy(at, &h, 2);
  }
}
static inline float get_value(const uint8_t* at, Values kind) {
  if (kind == Values::f32) {
    float v;
    std::memcpy(&v, at, 4);
    return v;
  }
  uint16_t h;
  std::memcpy(&h, at, 2);
  return kind == Values::f16 ? from_half(h) : from_bfloat(h);
}
// The value after conversion to the type and back.
static inline float rounded_to(Values kind, float v) {
  uint8_t buffer[4];
  put_value(buffer, kind, v);
  return get_value(buffer, kind);
}
static inline bool finite(float v) { return (bits_of(v) & 0x7fffffffu) <= kMaxFinite; }

}  // namespace cutlayer
