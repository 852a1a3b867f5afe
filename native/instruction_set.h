// Which of the machine's instructions the kernels use.
#pragma once

namespace tenuto {

enum class InstructionSet { portable, avx2, avx512_vnni, amx };

InstructionSet best_instruction_set();

}  // namespace tenuto
