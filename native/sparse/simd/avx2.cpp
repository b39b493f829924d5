// The kernels for AVX2 and BMI2.
#include <cstring>

#include "common/float16.hpp"
#include "sparse/kernels.hpp"

#ifdef CUTLAYER_X86
#include <immintrin.h>

// All that follows is compiled for these instructions. The standard headers above are not, so that the linker cannot
// give other files a function that their processor lacks.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi,bmi2,popcnt")
#endif
namespace cutlayer {
namespace avx2 {
#include "common/simd/bits.inc"
#include "common/simd/avx2.inc"
#include "sparse/simd/kernels.inc"
}  // namespace avx2
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
const Kernels avx2_kernels = CUTLAYER_TABLE(avx2);
}  // namespace cutlayer
#endif
