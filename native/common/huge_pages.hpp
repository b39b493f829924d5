// Advise the operating system to back a tensor with huge pages. Page faults of 4 KiB pages cost more than decoding
// into them. The advice may be ignored; nothing else changes then.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace cutlayer {

inline void advise_huge_pages(uintptr_t start, size_t nbytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
  const uintptr_t first = (start + page - 1) / page * page, end = (start + nbytes) / page * page;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#else
  (void)start, (void)nbytes;
#endif
}

}  // namespace cutlayer
