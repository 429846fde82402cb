// The C interface. The caller owns all memory; the structures are in model.h.
#include "step.h"

namespace trilemma {

template <class T>
int64_t run_if_it_fits(const TrilemmaModel& model, const TrilemmaBatch& batch) {
  Step<T> step(model, batch);
  const int64_t floats = step.workspace_floats();
  if (floats <= batch.workspace_floats) step.run();
  return floats;
}

template <class T>
void pack(const TrilemmaMatrix& to, const void* rows) {
  const T* from = static_cast<const T*>(rows);
  const long panels = whole_panels(to.columns) / NR;
#pragma omp parallel for
  for (long panel = 0; panel < panels; ++panel)
    pack_panel(from, to.columns, to.depth, panel, reinterpret_cast<T*>(static_cast<char*>(to.panels) + panel * to.stride));
}

}  // namespace trilemma

using namespace trilemma;

extern "C" {
int64_t trilemma_panel() { return NR; }
int64_t trilemma_vector() { return W; }
int64_t trilemma_pairs() { return TRILEMMA_PAIRS; }
const char* trilemma_kinds() { return TRILEMMA_KINDS(TRILEMMA_KIND_NAME); }

void trilemma_pack(const TrilemmaMatrix* to, const void* rows, int64_t is_bf16) {
  is_bf16 ? pack<bf16>(*to, rows) : pack<float>(*to, rows);
}

// Bytes of one panel of a matrix; its panels are not looked at.
int64_t trilemma_panel_bytes(const TrilemmaMatrix* matrix, int64_t is_bf16) {
  if (matrix->bits) return Layout(*matrix).panel_bytes;
  return NR * (is_bf16 ? 2 * panel_depth<bf16>(matrix->depth) : 4 * panel_depth<float>(matrix->depth));
}

void trilemma_pack_codes(const TrilemmaMatrix* matrix, const TrilemmaCodes* codes) { pack_codes(*matrix, *codes); }

// A quantized matrix by itself: x [tokens, depth] to out [tokens, columns].
void trilemma_product(const TrilemmaMatrix* matrix, const float* x, int64_t tokens, float* out) {
  const long floats = prepared_floats(*matrix, tokens), panels = whole_panels(matrix->columns) / NR;
  std::vector<float> input(tokens * floats);
  for (long token = 0; token < tokens; ++token) prepare(*matrix, tokens, x + token * matrix->depth, input.data() + token * floats);
#pragma omp parallel for
  for (long panel = 0; panel < panels; ++panel) {
    std::vector<float> found(tokens * NR), room(matrix->depth * NR);
    quantized_panel(*matrix, static_cast<const char*>(matrix->panels) + panel * matrix->stride, tokens, input.data(), tokens, room.data(), found.data());
    const long count = std::min<long>(NR, matrix->columns - panel * NR);
    for (long token = 0; token < tokens; ++token)
      std::copy_n(found.data() + token * NR, count, out + token * matrix->columns + panel * NR);
  }
}

// Row `row` of a quantized matrix as float32 [depth].
void trilemma_row(const TrilemmaMatrix* matrix, int64_t row, float* to) { quantized_row(*matrix, row, to); }

// Floats of workspace that a batch needs; its own workspace and logits are not looked at.
int64_t trilemma_workspace(const TrilemmaModel* model, const TrilemmaBatch* batch, int64_t is_bf16) {
  return is_bf16 ? Step<bf16>(*model, *batch).workspace_floats() : Step<float>(*model, *batch).workspace_floats();
}

// Returns the floats of workspace that the batch needs; with fewer nothing is computed.
int64_t trilemma_step(const TrilemmaModel* model, const TrilemmaBatch* batch, int64_t is_bf16) {
  return is_bf16 ? run_if_it_fits<bf16>(*model, *batch) : run_if_it_fits<float>(*model, *batch);
}

// query and out [tokens, heads * head_dim] in float32; out is that of the last layer.
void trilemma_attention(const TrilemmaModel* model, const TrilemmaBatch* batch, int64_t is_bf16, const float* query, float* out,
                        int64_t first_layer, int64_t last_layer) {
  is_bf16 ? Step<bf16>(*model, *batch).attention(query, out, first_layer, last_layer)
          : Step<float>(*model, *batch).attention(query, out, first_layer, last_layer);
}

// Thread i of the pool stays on core cores[i]; null: wherever the caller may run. Returns 0, or errno.
int64_t trilemma_bind(const int32_t* cores, int64_t threads) { return bind_threads(cores, threads); }
}
