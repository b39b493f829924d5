// Which instruction sets have loops of their own. Which of these runs is decided at run time, by the processor.
#pragma once

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define CUTLAYER_X86 1
#endif
#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define CUTLAYER_NEON 1  // part of every arm64
#endif
