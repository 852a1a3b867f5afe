#include "instruction_set.h"

#include <cstring>

#include "attention.h"
#include "int4.h"

namespace tenuto {

bool amx_granted();  // see int8_amx.cpp

namespace {

constexpr const char* kNames[] = {"portable", "avx2", "avx512-vnni", "amx"};

InstructionSet used = best_instruction_set();

}  // namespace

InstructionSet best_instruction_set() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (wide && __builtin_cpu_supports("avx512vnni"))
    return amx_granted() ? InstructionSet::amx : InstructionSet::avx512_vnni;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return InstructionSet::avx2;
#endif
  return InstructionSet::portable;
}

}  // namespace tenuto

using namespace tenuto;

TENUTO_API const char* tenuto_isa() { return kNames[static_cast<int>(used)]; }

TENUTO_API int tenuto_use_isa(const char* name) {
  for (int set = 0; set <= static_cast<int>(best_instruction_set()); ++set) {
    if (std::strcmp(name, kNames[set]) != 0) continue;
    used = static_cast<InstructionSet>(set);
    use_int8(used);
    use_int4(used);
    use_floats(used);
    return 1;
  }
  return 0;
}
