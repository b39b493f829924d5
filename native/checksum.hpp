// CRC-32 as in zlib.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cutlayer {
uint32_t crc32(const uint8_t* data, size_t n);
}
