// Decoding of payloads (FORMAT.md, "Codecs"). The caller has checked sizes; the content is checked here.
#pragma once
#include "sparse/kernels.hpp"
#include "sparse/topk.hpp"

namespace cutlayer {

// Why a payload is refused. The messages are in codecs/kernels/dispatch.py.
enum class Fault : int { none = 0, marks = 1, value = 2, padding = 3, key = 4, range = 5 };

Fault ms_decode(const uint8_t* in, Shape shape, unsigned bits, bool is_signed, Values kind, float* out,
                int threads);
Fault sparse_decode(const uint8_t* in, Shape shape, bool keys, Values kind, float* out, int threads);
// `range`: lo and hi of all sections, or null if each section starts with its own.
Fault qu_decode(const uint8_t* in, size_t rows, size_t d, unsigned bits, const float* range, float* out,
                int threads);
Fault km_decode(const uint8_t* in, size_t rows, size_t d, unsigned bits, float* out, int threads);
Fault check_values(const uint8_t* in, size_t n, Values kind, int threads);

}  // namespace cutlayer
