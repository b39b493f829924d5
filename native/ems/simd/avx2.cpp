// The inner loops of `ems` for AVX2.
#include <cmath>
#include <cstring>

#include "ems/kernels.hpp"

#ifdef CUTLAYER_X86
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi,bmi2,popcnt")
#endif
#define CUTLAYER_ISA 1
namespace cutlayer {
namespace avx2 {
#include "ems/simd/lookup.inc"
#include "ems/simd/quantize.inc"
#include "ems/simd/predict.inc"
#include "ems/simd/reconstruct.inc"
#include "ems/simd/transpose.inc"
#include "ems/simd/rans_decode.inc"
#include "ems/simd/rans_encode.inc"
#include "ems/simd/kernel_table.inc"
}  // namespace avx2
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
const EmsKernels ems_avx2 = avx2::ems_table;
}  // namespace cutlayer
#endif
