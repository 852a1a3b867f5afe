// What this machine can do at best: how fast its cores read memory, and multiply. `tenuto bench kernels` holds the kernels
// against it. Threads are the probe's own, one a slice, so that no scheduling of ours is measured.
#include <algorithm>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "instruction_set.h"
#include "kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "target.h"
#if defined(TENUTO_HAS_AMX)
TENUTO_TARGET("amx-tile,amx-int8")
#include "tiles.h"
TENUTO_TARGET_END
#endif

using namespace tenuto;

namespace {

constexpr int kChains = 16;  // independent accumulators: more than the latency of any multiplication needs
constexpr int kUnroll = 64;  // instructions of one chain in a round

// Call work(i) for i in 0 .. count - 1, each on a thread of its own where the system gives one.
template <typename Work>
void on_threads(int count, Work work) {
  std::vector<std::thread> threads;
  int started = 1;
  try {
    for (; started < count; ++started) threads.emplace_back(work, started);
  } catch (const std::system_error&) {  // no more threads to be had: the rest is done here
  }
  work(0);
  for (int i = started; i < count; ++i) work(i);
  for (auto& thread : threads) thread.join();
}

// The sum of 64-bit words, by the widest loads of the machine.
using Reader = uint64_t (*)(const uint64_t*, size_t);

uint64_t read_plain(const uint64_t* words, size_t count) {
  uint64_t sum[8] = {};
  size_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int k = 0; k < 8; ++k) sum[k] += words[i + k];
  for (; i < count; ++i) sum[0] += words[i];
  return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

// One round is kChains x kUnroll multiply-adds; `rounds` of them. What is computed must be seen by the compiler to matter.
using Multiplier = void (*)(int64_t rounds);

void multiply_floats_plain(int64_t rounds) {
  float sums[kChains] = {}, factor = 1.000001f;
  for (int64_t r = 0; r < rounds * kUnroll; ++r) {
    for (float& sum : sums) sum = sum * factor + 0.5f;
    asm volatile("" : : "r"(sums) : "memory");
  }
}

void multiply_bytes_plain(int64_t rounds) {
  int8_t bytes[64] = {1, 2, 3};
  int32_t sums[kChains] = {};
  for (int64_t r = 0; r < rounds * kUnroll; ++r) {
    for (int i = 0; i < kChains; ++i) sums[i] += bytes[i] * bytes[63 - i];
    asm volatile("" : : "r"(sums), "r"(bytes) : "memory");
  }
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) uint64_t read_avx2(const uint64_t* words, size_t count) {
  __m256i sum[8];
  for (auto& s : sum) s = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + 32 <= count; i += 32)
    for (int k = 0; k < 8; ++k)
      sum[k] = _mm256_add_epi64(sum[k], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + i + 4 * k)));
  uint64_t parts[4];
  for (int k = 1; k < 8; ++k) sum[0] = _mm256_add_epi64(sum[0], sum[k]);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(parts), sum[0]);
  return parts[0] + parts[1] + parts[2] + parts[3] + read_plain(words + i, count - i);
}

__attribute__((target("avx512f"))) uint64_t read_avx512(const uint64_t* words, size_t count) {
  __m512i sum[8];
  for (auto& s : sum) s = _mm512_setzero_si512();
  size_t i = 0;
  for (; i + 64 <= count; i += 64)
    for (int k = 0; k < 8; ++k) {
      _mm_prefetch(reinterpret_cast<const char*>(words + i + 8 * k) + 4096, _MM_HINT_T0);
      sum[k] = _mm512_add_epi64(sum[k], _mm512_loadu_si512(words + i + 8 * k));
    }
  uint64_t parts[8];
  for (int k = 1; k < 8; ++k) sum[0] = _mm512_add_epi64(sum[0], sum[k]);
  _mm512_storeu_si512(parts, sum[0]);
  return read_plain(parts, 8) + read_plain(words + i, count - i);
}

#define TENUTO_EACH_CHAIN(step) \
  step(0) step(1) step(2) step(3) step(4) step(5) step(6) step(7) step(8) step(9) step(10) step(11)

constexpr int kVectorChains = 12;  // the operands need registers too

__attribute__((target("avx512f"))) void multiply_floats_avx512(int64_t rounds) {
#define TENUTO_DECLARE(i) __m512 sum##i = _mm512_set1_ps(i);
#define TENUTO_STEP(i) asm volatile("vfmadd231ps %1, %1, %0" : "+v"(sum##i) : "v"(factor));
  TENUTO_EACH_CHAIN(TENUTO_DECLARE)
  const __m512 factor = _mm512_set1_ps(0.25f);
  for (int64_t r = 0; r < rounds * kUnroll; ++r) {
    TENUTO_EACH_CHAIN(TENUTO_STEP)
  }
#undef TENUTO_DECLARE
#undef TENUTO_STEP
}

__attribute__((target("avx2,fma"))) void multiply_floats_avx2(int64_t rounds) {
#define TENUTO_DECLARE(i) __m256 sum##i = _mm256_set1_ps(i);
#define TENUTO_STEP(i) asm volatile("vfmadd231ps %1, %1, %0" : "+x"(sum##i) : "x"(factor));
  TENUTO_EACH_CHAIN(TENUTO_DECLARE)
  const __m256 factor = _mm256_set1_ps(0.25f);
  for (int64_t r = 0; r < rounds * kUnroll; ++r) {
    TENUTO_EACH_CHAIN(TENUTO_STEP)
  }
#undef TENUTO_DECLARE
#undef TENUTO_STEP
}

__attribute__((target("avx512f,avx512vnni"))) void multiply_bytes_vnni(int64_t rounds) {
#define TENUTO_DECLARE(i) __m512i sum##i = _mm512_set1_epi32(i);
#define TENUTO_STEP(i) asm volatile("vpdpbusd %1, %1, %0" : "+v"(sum##i) : "v"(bytes));
  TENUTO_EACH_CHAIN(TENUTO_DECLARE)
  const __m512i bytes = _mm512_set1_epi8(3);
  for (int64_t r = 0; r < rounds * kUnroll; ++r) {
    TENUTO_EACH_CHAIN(TENUTO_STEP)
  }
#undef TENUTO_DECLARE
#undef TENUTO_STEP
}

// Without a dot product of bytes it takes three instructions: bytes to words, words to double words, and the sum.
__attribute__((target("avx2"))) void multiply_bytes_avx2(int64_t rounds) {
#define TENUTO_DECLARE(i) __m256i sum##i = _mm256_set1_epi32(i);
#define TENUTO_STEP(i)                                                                                      \
  asm volatile("vpmaddubsw %2, %2, %1\n\tvpmaddwd %3, %1, %1\n\tvpaddd %1, %0, %0"                          \
               : "+x"(sum##i), "=&x"(words)                                                                 \
               : "x"(bytes), "x"(ones));
  TENUTO_EACH_CHAIN(TENUTO_DECLARE)
  const __m256i bytes = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
  __m256i words;
  for (int64_t r = 0; r < rounds * kUnroll; ++r) {
    TENUTO_EACH_CHAIN(TENUTO_STEP)
  }
#undef TENUTO_DECLARE
#undef TENUTO_STEP
}

#ifdef TENUTO_HAS_AMX
constexpr int kTileChains = 6;  // of the eight tiles two are operands

TENUTO_TARGET("amx-tile,amx-int8")
void multiply_tiles(int64_t rounds) {
  begin_tiles(kTileRows);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t r = 0; r < rounds; ++r) {
    _tile_dpbsud(0, 6, 7);
    _tile_dpbsud(1, 6, 7);
    _tile_dpbsud(2, 6, 7);
    _tile_dpbsud(3, 6, 7);
    _tile_dpbsud(4, 6, 7);
    _tile_dpbsud(5, 6, 7);
  }
  end_tiles();
}
TENUTO_TARGET_END
#endif
#endif  // __x86_64__

Reader reader() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return read_avx512;
  if (__builtin_cpu_supports("avx2")) return read_avx2;
#endif
  return read_plain;
}

// A multiplier, and the multiplications and additions of one of its rounds.
struct Kind {
  Multiplier run;
  int64_t operations;
};

Kind kind_of(const char* name) {
  const bool floats = std::strcmp(name, "fp32") == 0, bytes = std::strcmp(name, "int8") == 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
  constexpr int64_t kInstructions = static_cast<int64_t>(kVectorChains) * kUnroll;
  if (floats && __builtin_cpu_supports("avx512f")) return {multiply_floats_avx512, kInstructions * 16 * 2};
  if (floats && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {multiply_floats_avx2, kInstructions * 8 * 2};
  if (bytes && __builtin_cpu_supports("avx512vnni")) return {multiply_bytes_vnni, kInstructions * 64 * 2};
  if (bytes && __builtin_cpu_supports("avx2")) return {multiply_bytes_avx2, kInstructions * 32 * 2};
#ifdef TENUTO_HAS_AMX
  if (std::strcmp(name, "int8-tiles") == 0 && has_tiles()) return {multiply_tiles, kTileChains * 16 * 16 * 64 * 2};
#endif
#endif
  if (floats) return {multiply_floats_plain, static_cast<int64_t>(kChains) * kUnroll * 2};
  if (bytes) return {multiply_bytes_plain, static_cast<int64_t>(kChains) * kUnroll * 2};
  return {nullptr, 0};
}

}  // namespace

TENUTO_API uint64_t tenuto_probe_read(const void* memory, size_t bytes, int rounds, int num_threads) {
  constexpr size_t kLine = 64;
  const Reader read = reader();
  const size_t lines = bytes / kLine, threads = static_cast<size_t>(std::max(1, num_threads));
  std::vector<uint64_t> sums(threads * 8);  // a cache line each
  on_threads(static_cast<int>(threads), [&](int thread) {
    const size_t first = lines * thread / threads, end = lines * (thread + 1) / threads;
    const auto* words = reinterpret_cast<const uint64_t*>(static_cast<const char*>(memory) + first * kLine);
    for (int round = 0; round < rounds; ++round) sums[thread * 8] += read(words, (end - first) * kLine / 8);
  });
  uint64_t total = 0;
  for (size_t thread = 0; thread < threads; ++thread) total += sums[thread * 8];
  return total;
}

TENUTO_API int64_t tenuto_probe_multiply(const char* kind, int64_t rounds, int num_threads) {
  const Kind found = kind_of(kind);
  if (found.run == nullptr) return 0;
  on_threads(std::max(1, num_threads), [&](int) { found.run(rounds); });
  return found.operations;
}
