// Whether the loops for AVX2 and AVX-512 are compiled. Which of them runs is decided at run time, by the processor.
#pragma once

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define CUTLAYER_X86 1
#endif
