// The kernels for AVX-512 (F, BW, DQ, VL).
#include <cstring>

#include "sparse/kernels.hpp"
#include "common/float16.hpp"

#ifdef CUTLAYER_X86
#include <immintrin.h>

// Everything below is compiled for these instructions; nothing above (the standard headers) is, so no
// other file can end up with a function that its processor lacks.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl")
#endif
#define CUTLAYER_ISA 2
namespace cutlayer {
namespace avx512 {
#include "sparse/simd/block64.inc"
#include "sparse/simd/scan.inc"
#include "sparse/simd/philox.inc"
#include "sparse/simd/pack.inc"
#include "sparse/simd/unpack.inc"
}  // namespace avx512
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
const Kernels avx512_kernels = CUTLAYER_TABLE(avx512);
}  // namespace cutlayer
#endif
