// The kernels for NEON, which every arm64 has.
#include <cstring>

#include "common/float16.hpp"
#include "sparse/kernels.hpp"

#ifdef CUTLAYER_NEON
#include <arm_neon.h>

namespace cutlayer {
namespace neon {
#include "common/simd/bits.inc"
#include "common/simd/neon.inc"
#include "sparse/simd/kernels.inc"
}  // namespace neon
const Kernels neon_kernels = CUTLAYER_TABLE(neon);
}  // namespace cutlayer
#endif
