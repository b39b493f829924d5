// The inner loops of `ems` for AVX-512 (F, BW, DQ, VL).
#include <cmath>
#include <cstring>

#include "ems/kernels.hpp"

#ifdef CUTLAYER_X86
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl")
#endif
#define CUTLAYER_ISA 2
namespace cutlayer {
namespace avx512 {
#include "ems/simd/lookup.inc"
#include "ems/simd/quantize.inc"
#include "ems/simd/predict.inc"
#include "ems/simd/unpadded.inc"
#include "ems/simd/reconstruct.inc"
#include "ems/simd/transpose.inc"
#include "ems/simd/rans_decode.inc"
#include "ems/simd/rans_encode.inc"
#include "ems/simd/kernel_table.inc"
}  // namespace avx512
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
const EmsKernels ems_avx512 = avx512::ems_table;
}  // namespace cutlayer
#endif
