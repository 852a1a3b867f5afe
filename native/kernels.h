// The C interface of the CPU kernels. Everything is row-major and contiguous unless it says otherwise.
//
// Integer products are exact, and sums of floats are taken in an order that depends on the row alone: a row's bits do
// not depend on how many rows there are, which place it has, or how many threads work.
#pragma once
#include <cstddef>
#include <cstdint>

#define TENUTO_API extern "C" __attribute__((visibility("default")))

struct TenutoPool;  // threads; see thread_pool.h

// --- machine ---------------------------------------------------------------------------------------------------------

// Name of the instruction set in use: "amx", "avx512-vnni", "avx2", "neon-dotprod" or "portable".
TENUTO_API const char* tenuto_isa();
// For tests and benchmarks: use another one; 0 if there is none of that name or the machine lacks it.
TENUTO_API int tenuto_use_isa(const char* name);
// May get fewer threads than it asks for.
TENUTO_API TenutoPool* tenuto_pool_new(int num_threads);
TENUTO_API void tenuto_pool_free(TenutoPool* pool);

// --- INT8 or INT4 weights x INT8 activations --------------------------------------------------------------------------
//
// Inputs are taken in chunks of 64, each rotated by the orthonormal Hadamard matrix, weights and activations alike; one
// to twelve chunks, a span, share a scale: the most that divides their number.

// Of the packed forms: it changes whenever they do.
TENUTO_API int tenuto_format_version();

// Bytes of a packed matrix. `in` is rounded up to a multiple of 64, `out` to a multiple of 16.
TENUTO_API size_t tenuto_int8_packed_bytes(int out, int in);

// Quantise and pack a matrix [out, in]. Each row has a half-precision scale for every span: max |w| / 127.
// The memory must be 64-byte aligned.
TENUTO_API void tenuto_int8_pack(TenutoPool* pool, const float* weights, int out, int in, void* packed);

// What a packed matrix stands for, rotated: [out, in rounded up to a multiple of 64].
TENUTO_API void tenuto_int8_unpack(const void* packed, int out, int in, float* weights);

// The same with four bits for a weight: the nearest of 16 levels, which each chunk of a row has in one of eight shapes
// (int4.h). Scale and shapes are those with the least squared error of a few that are tried.
TENUTO_API size_t tenuto_int4_packed_bytes(int out, int in);
TENUTO_API void tenuto_int4_pack(TenutoPool* pool, const float* weights, int out, int in, void* packed);
TENUTO_API void tenuto_int4_unpack(const void* packed, int out, int in, float* weights);

struct TenutoMatrix {
  const void* packed;
  const float* bias;  // [out] or null
  int32_t in, out;
  int32_t bits;  // of a weight: 8 or 4
};

// Bytes of scratch that `tenuto_linear` wants for `rows` rows, 64-byte aligned.
TENUTO_API size_t tenuto_linear_scratch_bytes(int rows, int in);

// y [rows, out] = x [rows, in] W^T (+ bias). Each row of x is quantised for every span with the scale max |x| / 127
// (float32).
TENUTO_API void tenuto_linear(TenutoPool* pool, const float* x, int rows, const TenutoMatrix* matrix, float* y,
                              void* scratch);

// --- floats ----------------------------------------------------------------------------------------------------------

// out = x / rms(x) * weight, row by row: [rows, size]. With a residual, x + residual is normed, and stored in `total`.
TENUTO_API void tenuto_rms_norm(TenutoPool* pool, const float* x, const float* residual, const float* weight, int rows,
                                int size, float eps, float* out, float* total);

// out [rows, size] = activation(gate) * up, of gate_up [rows, 2 size]. activation: 0 silu, 1 gelu (tanh).
TENUTO_API void tenuto_gated(TenutoPool* pool, const float* gate_up, int rows, int size, int activation, float* out);

// --- attention -------------------------------------------------------------------------------------------------------

// KV of one layer, in blocks of 16 tokens: [kv_heads, blocks, 16 head_size], laid out as attention.h says. head_size is a
// multiple of 16, at most 1024. Float32 if the scales are null. Otherwise INT8: each token and head has a scale,
// max |x| / 127 rounded up to a brain float, in [kv_heads, blocks, 16].
struct TenutoLayer {
  void* keys;
  void* values;
  uint16_t* key_scales;
  uint16_t* value_scales;
  int32_t num_blocks;
  int32_t kv_heads;
  int32_t head_size;
  int32_t window;  // 0: none
};

// Norm (weights may be null) and rotate (cos_sin [rows, 2, head_size / 2], may be null) the heads of Q and K; store K and
// V in their slots. qkv: [rows, (heads + 2 kv_heads) head_size]; q: [rows, heads, head_size], multiplied by q_scale. With
// INT8 KV and heads of whole chunks of 64, each chunk of Q and K is multiplied by the orthonormal Hadamard matrix.
TENUTO_API void tenuto_rotate_and_write(TenutoPool* pool, const float* qkv, int rows, int heads, const float* cos_sin,
                                        const float* q_norm, const float* k_norm, float eps, float q_scale,
                                        const int64_t* slots, const TenutoLayer* layer, float* q);

// Causal attention of every row over its sequence's blocks. query_starts: [sequences + 1]; kv_lens: [sequences];
// tables: [sequences, table_width]; q is scaled already; out: [rows, heads, head_size].
TENUTO_API void tenuto_attention(TenutoPool* pool, const float* q, int heads, const int32_t* query_starts,
                                 const int32_t* kv_lens, const int64_t* tables, int table_width, int sequences,
                                 const TenutoLayer* layer, float* out);

// --- what the machine can do at best ---------------------------------------------------------------------------------

// Read memory `rounds` times with threads of its own, each a part of it; the sum of its 64-bit words, times `rounds`.
TENUTO_API uint64_t tenuto_probe_read(const void* memory, size_t bytes, int rounds, int num_threads);

// Multiply-add instructions in a bare loop, `rounds` rounds on each thread. kind: "int8" (the best vector instruction),
// "int8-tiles" (AMX) or "fp32". Returns the multiplications and additions of one round on one thread; 0, and does
// nothing, if the machine or the system has no such thing.
TENUTO_API int64_t tenuto_probe_multiply(const char* kind, int64_t rounds, int num_threads);

// --- decoder ---------------------------------------------------------------------------------------------------------

// A layer: x += attention(norm(x)), then x += mlp(norm(x)), mlp(x) = down(activation(gate(x)) * up(x)). Norms are RMS
// norms; what attention and MLP give is normed too where there is a post norm.
struct TenutoDecoderLayer {
  const float *attention_norm, *attention_post_norm, *mlp_norm, *mlp_post_norm;  // the post norms may be null
  const float *q_norm, *k_norm;                                                  // may be null
  TenutoMatrix qkv, output, gate_up, down;  // gate_up: gates, then ups, as many, a multiple of 16
  int32_t heads;
  int32_t rotary;      // which of the step's angles; -1: none
  int32_t activation;  // as for `tenuto_gated`
  float eps, head_eps, q_scale;
};

// See `tenuto_rotate_and_write` and `tenuto_attention`.
struct TenutoStep {
  int32_t rows, sequences, table_width;
  const int32_t *query_starts, *kv_lens;
  const int64_t *tables, *slots;
  const float* const* angles;
};

// Bytes of scratch, 64-byte aligned.
TENUTO_API size_t tenuto_decoder_scratch_bytes(const TenutoDecoderLayer* layers, int count, int rows);

// x [rows, hidden] is changed in place. The results are those of the single operations, bit for bit.
TENUTO_API void tenuto_decoder_layers(TenutoPool* pool, const TenutoDecoderLayer* layers, const TenutoLayer* kv,
                                      int count, const TenutoStep* step, float* x, void* scratch);
