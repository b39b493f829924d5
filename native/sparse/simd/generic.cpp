// The kernels for any processor, and the choice of an instruction set.
#include <cstring>

#include "common/float16.hpp"
#include "sparse/kernels.hpp"

namespace cutlayer {
namespace generic {
#include "common/simd/bits.inc"
#include "common/simd/portable.inc"
#include "sparse/simd/kernels.inc"
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
#ifdef CUTLAYER_NEON
  return &neon_kernels;
#endif
  return &generic_kernels;
}

static const Kernels* forced = nullptr;

const Kernels& kernels() {
  static const Kernels* const here = best();
  return forced ? *forced : *here;
}

bool force_kernels(const char* name) {
  const Kernels* all[] = {
#ifdef CUTLAYER_X86
      &avx512_kernels, &avx2_kernels,
#endif
#ifdef CUTLAYER_NEON
      &neon_kernels,
#endif
      &generic_kernels};
  if (!name) {
    forced = nullptr;
    return true;
  }
  // The list is ordered from the most to the least demanding: this processor runs the best one and all after it.
  bool runs = false;
  for (const Kernels* k : all) {
    runs |= k == best();
    if (runs && std::strcmp(k->name, name) == 0) {
      forced = k;
      return true;
    }
  }
  return false;
}

}  // namespace cutlayer
