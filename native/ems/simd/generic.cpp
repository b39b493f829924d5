// The inner loops of `ems` for any processor, and the choice among them.
#include <cmath>
#include <cstring>

#include "ems/ems.hpp"

#define CUTLAYER_ISA 0
namespace cutlayer {
namespace generic {
#include "ems/simd/predict.inc"
#include "ems/simd/reconstruct.inc"
#include "ems/simd/transpose.inc"
#include "ems/simd/rans_decode.inc"
#include "ems/simd/rans_encode.inc"
}  // namespace generic
const EmsKernels ems_generic = generic::ems_table;

const EmsKernels& ems_kernels() {
#ifdef CUTLAYER_X86
  if (&kernels() == &avx512_kernels) return ems_avx512;
  if (&kernels() == &avx2_kernels) return ems_avx2;
#endif
  return ems_generic;
}

}  // namespace cutlayer
