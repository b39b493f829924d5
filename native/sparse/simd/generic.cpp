// The kernels for any processor, and the choice of an instruction set.
#include <algorithm>
#include <cstring>
#include <iterator>

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

// The list is ordered from the most to the least demanding: this processor runs the best one and all after it.
std::vector<const Kernels*> available_kernels() {
  const Kernels* const all[] = {
#ifdef CUTLAYER_X86
      &avx512_kernels, &avx2_kernels,
#endif
#ifdef CUTLAYER_NEON
      &neon_kernels,
#endif
      &generic_kernels};
  return {std::find(std::begin(all), std::end(all), best()), std::end(all)};
}

static const Kernels* named(const char* name) {
  for (const Kernels* k : available_kernels())
    if (std::strcmp(k->name, name) == 0) return k;
  return nullptr;
}

static const Kernels*& chosen() {
  static const Kernels* here = best();
  return here;
}
static const Kernels* forced = nullptr;

const Kernels& kernels() { return forced ? *forced : *chosen(); }

bool choose_kernels(const char* name) {
  const Kernels* found = named(name);
  if (found) chosen() = found;
  return found != nullptr;
}

bool force_kernels(const char* name) {
  const Kernels* found = name ? named(name) : nullptr;
  if (name && !found) return false;
  forced = found;
  return true;
}

}  // namespace cutlayer
