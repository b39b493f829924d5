// Memory that was not used before comes page by page, and 4 KiB pages cost more than decoding into them:
// large tensors ask for large pages. A wish: where it cannot be met, everything works as before.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace cutlayer {

inline void ask_for_large_pages(uintptr_t start, size_t nbytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
  const uintptr_t first = (start + page - 1) / page * page, end = (start + nbytes) / page * page;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#else
  (void)start, (void)nbytes;
#endif
}

}  // namespace cutlayer
