#include "instruction_set.h"

#include <cstring>

#include "attention.h"
#include "int4.h"

#if defined(TENUTO_HAS_AMX)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace tenuto {

namespace {

constexpr const char* kNames[] = {"portable", "avx2", "avx512-vnni", "amx", "neon-dotprod"};
constexpr int kSets = sizeof kNames / sizeof kNames[0];

#if defined(TENUTO_HAS_NEON)
// The dot products of bytes, an extension of ARMv8.2. NEON itself belongs to the architecture.
bool has_dot_products() {
#if defined(__linux__)
  constexpr unsigned long kDotProducts = 1ul << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & kDotProducts) != 0;
#elif defined(__APPLE__)
  int has = 0;
  size_t size = sizeof has;
  return sysctlbyname("hw.optional.arm.FEAT_DotProd", &has, &size, nullptr, 0) == 0 && has != 0;
#else
  return false;
#endif
}
#endif

bool has(InstructionSet set) {
#if defined(__x86_64__)
  __builtin_cpu_init();
#endif
  switch (set) {
    case InstructionSet::portable: return true;
#if defined(__x86_64__)
    case InstructionSet::avx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case InstructionSet::avx512_vnni:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vnni");
    case InstructionSet::amx: return has(InstructionSet::avx512_vnni) && has_tiles();
#elif defined(TENUTO_HAS_NEON)
    case InstructionSet::neon_dot: return has_dot_products();
#endif
    default: return false;
  }
}

InstructionSet used = best_instruction_set();

}  // namespace

InstructionSet best_instruction_set() {
  int set = kSets - 1;
  while (!has(static_cast<InstructionSet>(set))) --set;
  return static_cast<InstructionSet>(set);
}

bool has_tiles() {
#if defined(TENUTO_HAS_AMX)
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 24 & 1) || !(d >> 25 & 1)) return false;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return false;  // XGETBV may be asked
  unsigned low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileState = 1u << 17 | 1u << 18;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl: ARCH_REQ_XCOMP_PERM
  return (low & kTileState) == kTileState && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace tenuto

using namespace tenuto;

TENUTO_API const char* tenuto_isa() { return kNames[static_cast<int>(used)]; }

TENUTO_API int tenuto_use_isa(const char* name) {
  for (int i = 0; i < kSets; ++i) {
    const auto set = static_cast<InstructionSet>(i);
    if (std::strcmp(name, kNames[i]) != 0 || !has(set)) continue;
    used = set;
    use_int8(used);
    use_int4(used);
    use_floats(used);
    return 1;
  }
  return 0;
}
