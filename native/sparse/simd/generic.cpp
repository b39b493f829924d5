// The kernels for any processor.
#include <cstring>

#include "sparse/kernels.hpp"
#include "common/float16.hpp"

#define CUTLAYER_ISA 0
namespace cutlayer {
namespace generic {
#include "sparse/simd/block64.inc"
#include "sparse/simd/scan.inc"
#include "sparse/simd/philox.inc"
#include "sparse/simd/pack.inc"
#include "sparse/simd/unpack.inc"
}  // namespace generic
const Kernels generic_kernels = CUTLAYER_TABLE(generic);

static const Kernels* best() {
#ifdef CUTLAYER_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return &avx512_kernels;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) return &avx2_kernels;
#endif
  return &generic_kernels;
}

static const Kernels* chosen = nullptr;

const Kernels& kernels() {
  static const Kernels* const here = best();
  return chosen ? *chosen : *here;
}

bool force_kernels(const char* name) {
  const Kernels* all[] = {
#ifdef CUTLAYER_X86
      &avx512_kernels, &avx2_kernels,
#endif
      &generic_kernels};
  if (!name) {
    chosen = nullptr;
    return true;
  }
  // The list runs from the most to the least demanding: what stands after the best one runs here, too.
  bool runs = false;
  for (const Kernels* k : all) {
    runs |= k == best();
    if (runs && std::strcmp(k->name, name) == 0) {
      chosen = k;
      return true;
    }
  }
  return false;
}

}  // namespace cutlayer
