// CRC-32 as in zlib. Long data are shared among threads.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cutlayer {
uint32_t crc32(const uint8_t* data, size_t n, int threads);
}
