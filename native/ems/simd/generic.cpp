// The inner loops of `ems` for any processor, and the choice of an instruction set.
#include <cmath>
#include <cstring>

#include "ems/kernels.hpp"

#define CUTLAYER_ISA 0
namespace cutlayer {
namespace generic {
#include "ems/simd/lookup.inc"
#include "ems/simd/quantize.inc"
#include "ems/simd/predict.inc"
#include "ems/simd/reconstruct.inc"
#include "ems/simd/transpose.inc"
#include "ems/simd/rans_decode.inc"
#include "ems/simd/rans_encode.inc"
#include "ems/simd/kernel_table.inc"
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
