// Which of the machine's instructions the kernels use.
#pragma once

namespace tenuto {

// Of one architecture, the later the better.
enum class InstructionSet { portable, avx2, avx512_vnni, amx, neon_dot };

InstructionSet best_instruction_set();

}  // namespace tenuto
