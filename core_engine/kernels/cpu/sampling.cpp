// The C interface of sampling: the rows of one step, each chosen alone, so that no token depends on who shares the step.
#include "sampling.h"

#include <vector>

// The rows to choose for. logits [.., vocab] holds row i's at places[i], and is left as it was. changed_starts [rows + 1]:
// where a row's ids and scores begin that bias, penalties and bans have changed, ids ascending. temperature 0 is greedy;
// numbers are uniform in [0, 1). tokens [rows] receives ids, -1 where the definition in float64 has to be asked.
struct TrilemmaSampling {
  int64_t rows, vocab, threads;
  float* logits;
  const int64_t* places;
  const double *temperatures, *top_ps, *min_ps;
  const int64_t* top_ks;
  const double* numbers;
  const int64_t *changed_starts, *changed_ids;
  const double* changed_scores;
  int64_t* tokens;
};

namespace trilemma {

// The room is kept: what a thread has touched of it stays resident, mostly far less than its size.
inline Chooser& own_chooser() {
  static thread_local Chooser chooser;
  return chooser;
}

inline void choose_row(const TrilemmaSampling& s, long row) {
  Chooser& chooser = own_chooser();
  chooser.make_room(s.vocab);
  float* const logits = s.logits + s.places[row] * s.vocab;
  const long first = s.changed_starts[row];
  const Changed changed{s.changed_ids + first, s.changed_scores + first, s.changed_starts[row + 1] - first};
  // Written into the row and taken out again: a copy of the row would cost more than the choice.
  std::vector<float> kept(changed.count);
  for (long i = 0; i < changed.count; ++i) kept[i] = logits[changed.ids[i]], logits[changed.ids[i]] = changed.scores[i];
  const Filters filters{s.temperatures[row], s.top_ps[row], s.min_ps[row], s.top_ks[row]};
  s.tokens[row] = chooser.choose(logits, s.vocab, changed, filters, s.numbers[row]);
  for (long i = 0; i < changed.count; ++i) logits[changed.ids[i]] = kept[i];
}

}  // namespace trilemma

using namespace trilemma;

extern "C" {
// As core_engine.sampling.uniform, for each row; keys [rows, 2] are seed and sample index.
void trilemma_uniform(const uint64_t* keys, const uint64_t* positions, uint64_t purpose, int64_t rows, double* numbers) {
  for (long row = 0; row < rows; ++row) numbers[row] = uniform(keys[2 * row], keys[2 * row + 1], positions[row], purpose);
}

// One row, as in most steps of one user, is not worth waking the others. A smaller team would make libgomp end threads.
void trilemma_choose(const TrilemmaSampling* sampling) {
  if (sampling->rows == 1) return choose_row(*sampling, 0);
#pragma omp parallel for schedule(dynamic) num_threads(sampling->threads)
  for (long row = 0; row < sampling->rows; ++row) choose_row(*sampling, row);
}
}
