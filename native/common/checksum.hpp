// CRC-32 as in zlib. Threads share long data, and their checksums are combined.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cutlayer {
uint32_t crc32(const uint8_t* data, size_t n, int threads);
}
