// The kernels for AVX-512 (F, BW, DQ, VL).
#include <cstring>

#include "common/float16.hpp"
#include "sparse/kernels.hpp"

#ifdef CUTLAYER_X86
#include <immintrin.h>

// All that follows is compiled for these instructions. The standard headers above are not, so that the linker cannot
// give other files a function that their processor lacks.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl")
#endif
namespace cutlayer {
namespace avx512 {
#include "common/simd/bits.inc"
#include "common/simd/avx512.inc"
#include "sparse/simd/kernels.inc"
}  // namespace avx512
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
const Kernels avx512_kernels = CUTLAYER_TABLE(avx512);
}  // namespace cutlayer
#endif
