// Which of the machine's instructions the kernels use.
#pragma once

// Clang before 16 has dot products only where the whole library may use them.
#if defined(__aarch64__) && (!defined(__clang__) || __clang_major__ >= 16 || defined(__ARM_FEATURE_DOTPROD))
#define TENUTO_HAS_NEON
#endif
#if defined(__x86_64__) && defined(__linux__) && (__GNUC__ >= 11 || __clang_major__ >= 12)
#define TENUTO_HAS_AMX  // these compilers know its instructions
#endif

namespace tenuto {

// Of one architecture, the later the better.
enum class InstructionSet { portable, avx2, avx512_vnni, amx, neon_dot };

InstructionSet best_instruction_set();

// The processor has tiles of bytes, the system saves them at a switch of threads, and lets this process use them.
bool has_tiles();

}  // namespace tenuto
