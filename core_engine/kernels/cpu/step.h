// One step of the decoder: embedding, all layers, and the logits of the rows that sample, as a list of operators. Every
// thread runs every operator and meets the others after it; panels and attention work are handed out by counters, so that
// a thread that the system holds up does not hold up the rest.
#pragma once
#include <omp.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <vector>

#include "attend.h"
#include "quantized.h"
#include "threads.h"

namespace trilemma {

// The operators, as they follow one another where there are all of them.
#define TRILEMMA_KINDS(of) \
  of(EMBED) of(NORM) of(QKV) of(QUERY) of(KEY) of(VALUE) of(ROTATE) of(WRITE) of(ROTATE_WRITE) of(ATTEND) of(MERGE) of(SCORE) \
  of(SOFTEN) of(WEIGH) of(OUTPUT) of(ADD) of(POST_NORM) of(GATE_UP) of(GATE) of(UP) of(ACTIVATE) of(DOWN) of(FINAL_NORM) \
  of(HEAD) of(BEST)
#define TRILEMMA_KIND(name) name,
#define TRILEMMA_KIND_NAME(name) #name " "

// Matrices of one input whose outputs follow one another, each filled up to whole panels.
struct Parts {
  const TrilemmaMatrix* at;
  long count;
  long panels_of(long part) const { return whole_panels(at[part].columns) / NR; }
  long panels() const {
    long sum = 0;
    for (long part = 0; part < count; ++part) sum += panels_of(part);
    return sum;
  }
  // The first part that reads the input in this one's form.
  long form_of(long part) const {
    long first = 0;
    while (!same_form(at[first], at[part])) ++first;
    return first;
  }
  long prepared(long tokens) const {  // floats of a token's input in all forms
    long sum = 0;
    for (long part = 0; part < count; ++part) sum += form_of(part) == part ? prepared_floats(at[part], tokens) : 0;
    return sum;
  }
  bool plain() const {  // any of them
    return std::any_of(at, at + count, [](const TrilemmaMatrix& part) { return !part.bits; });
  }
};
constexpr long PRIVATE_TOKENS = 4;  // so few are prepared by every thread for itself, with no barrier after it

template <class T>
class Step : private Work {
 public:
  Step(const TrilemmaModel& model, const TrilemmaBatch& batch)
      : Work(model, batch), attention_(attention_over(*this, sizeof(T) == sizeof(bf16))) {
    list_operators();
    counters = std::vector<std::atomic<long>>(operators.size());
    lay_workspace();
  }

  long workspace_floats() const { return floats; }

  void run() {
    const long count = operators.size();
    if (b.one_call) return run(0, count);
    for (long index = 0; index < count; ++index) run(index, index + 1);
  }

  // Attention alone: layers [first, last) over KV that is already written, all with the same queries, in plain order.
  void attention(const float* query, float* out, long first, long last) {
    const float scale = 1.0f / std::sqrt(float(m.head_dim));
    for (long token = 0; token < b.tokens; ++token)
      for (long i = 0; i < query_size; ++i) qkv[token * width + i] = query[token * query_size + i] * scale;
    std::vector<Operator> kept;
    for (const Operator& op : operators)
      if (op.kind >= ATTEND && op.kind <= WEIGH && op.layer >= first && op.layer < last) kept.push_back(op);
    operators = kept;
    run(0, operators.size());
    std::memcpy(out, attended, sizeof(float) * b.tokens * query_size);
  }

 private:
  enum Kind { TRILEMMA_KINDS(TRILEMMA_KIND) };
  struct Operator {
    Kind kind;
    long layer;
  };
  const std::unique_ptr<Attention> attention_;
  std::vector<Operator> operators;
  std::vector<std::atomic<long>> counters;
  long result_at = 0, expanded_at = 0, floats = 0;
  float *hidden, *normed, *inner, *up, *delta, *cosines, *sines, *prepared_input;

  void list_operators() {
    const auto add = [this](long layer, std::initializer_list<Kind> kinds) {
      for (Kind kind : kinds) operators.push_back({kind, layer});
    };
    add(0, {EMBED});
    for (long layer = 0; layer < m.layers; ++layer) {
      b.fused ? add(layer, {NORM, QKV, ROTATE_WRITE}) : add(layer, {NORM, QUERY, KEY, VALUE, ROTATE, WRITE});
      b.flash ? add(layer, {ATTEND}) : add(layer, {SCORE, SOFTEN, WEIGH});
      if (splits > 1) add(layer, {MERGE});
      b.fused ? add(layer, {OUTPUT, POST_NORM, GATE_UP, DOWN})
              : add(layer, {OUTPUT, ADD, POST_NORM, GATE, UP, ACTIVATE, DOWN, ADD});
    }
    if (b.wanted || b.hidden) add(0, {FINAL_NORM});
    if (b.wanted) add(0, {HEAD});
    if (b.wanted && b.best) add(0, {BEST});
  }

  void lay_workspace() {
    const long n = b.tokens, partials = splits > 1 ? long(items.size()) : 0;
    const auto take = [this](long count) {
      float* found = b.workspace + floats;
      floats += (count + 15) / 16 * 16;  // whole lines
      return found;
    };
    hidden = take(n * m.hidden), normed = take(n * m.hidden), qkv = take(n * width), attended = take(n * query_size);
    inner = take(n * m.inner), cosines = take(n * m.head_dim / 2), sines = take(n * m.head_dim / 2);
    up = take(b.fused ? 0 : n * m.inner), delta = take(b.fused ? 0 : n * m.hidden);
    partial_out = take(partials * query_size), partial_max = take(partials * m.heads), partial_sum = take(partials * m.heads);
    scores = take(score_floats);
    const long pair_rows = std::max({pair_floats(m.hidden), pair_floats(m.inner), pair_floats(query_size)});
    const long input_floats = most_prepared();
    result_at = token_block(m.hidden) * NR + pair_rows;
    const long results = input_floats ? token_block(std::min({m.hidden, m.inner, query_size})) * NR : 0;
    const long expanded = input_floats ? std::max({m.hidden, m.inner, query_size}) * NR : 0;
    expanded_at = result_at + results;
    scratch_floats = std::max({TileScratch::floats(group, m.head_dim), 2 * query_size + (2 + CHUNK) * m.heads + CHUNK * m.head_dim, expanded_at + expanded});
    scratch_floats = (scratch_floats + 15) / 16 * 16;
    scratch = take(scratch_floats * b.threads);
    prepared_input = take(input_floats);
  }

  // Floats of the largest input in the forms of a product's quantized parts.
  long most_prepared() const {
    const auto of = [this](Parts parts, long tokens) {
      return parts.prepared(tokens) * (tokens <= PRIVATE_TOKENS ? tokens * b.threads : tokens);
    };
    long most = of({&m.head, 1}, b.wanted);
    for (const TrilemmaLayer* l = m.layer; l < m.layer + m.layers; ++l)
      most = std::max({most, of({l->qkv, 3}, b.tokens), of({&l->output, 1}, b.tokens), of({l->gate_up, 2}, b.tokens), of({&l->down, 1}, b.tokens)});
    return most;
  }

  void run(long first, long last) {
#pragma omp parallel num_threads(b.threads)
    {
      const Thread thread{omp_get_thread_num(), omp_get_num_threads()};
      stay_on_core(thread.number);
      for (long index = first; index < last; ++index) {
        const auto begun = std::chrono::steady_clock::now();
        operate(operators[index], counters[index], thread);
#pragma omp barrier
        if (b.kind_ns && thread.number == 0)
          b.kind_ns[operators[index].kind] += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begun).count();
      }
    }
  }

  void operate(const Operator& op, std::atomic<long>& counter, Thread thread) {
    const long n = b.tokens;
    const TrilemmaLayer& l = m.layer[op.layer];
    switch (op.kind) {
      case EMBED: return embed(thread);
      case NORM: return normalize(l.input_norm, n, thread);
      case QKV: return projection(counter, thread, l, {l.qkv, 3}, 0);
      case QUERY: return projection(counter, thread, l, {l.qkv, 1}, 0);
      case KEY: return projection(counter, thread, l, {l.qkv + 1, 1}, key_at);
      case VALUE: return projection(counter, thread, l, {l.qkv + 2, 1}, value_at);
      case ROTATE: return rotate_and_write(l, op.layer, thread, true, false);
      case WRITE: return rotate_and_write(l, op.layer, thread, false, true);
      case ROTATE_WRITE: return rotate_and_write(l, op.layer, thread, true, true);
      case ATTEND: return attention_->attend(Part::WHOLE, op.layer, counter, l.window, thread);
      case SCORE: return attention_->attend(Part::SCORE, op.layer, counter, l.window, thread);
      case SOFTEN: return attention_->attend(Part::SOFTEN, op.layer, counter, l.window, thread);
      case WEIGH: return attention_->attend(Part::WEIGH, op.layer, counter, l.window, thread);
      case MERGE: return attention_->merge(thread);
      case OUTPUT: return into_hidden(counter, thread, attended, l.output, l.output_bias);
      case ADD: return add_delta(thread);
      case POST_NORM: return normalize(l.post_norm, n, thread);
      case GATE_UP: return gated(counter, l, thread);
      case GATE: return half(counter, thread, l, 0, inner);
      case UP: return half(counter, thread, l, 1, up);
      case ACTIVATE: return activate(thread);
      case DOWN: return into_hidden(counter, thread, inner, l.down, l.down_bias);
      case FINAL_NORM: return final_norms(thread);
      case HEAD: return logits(counter, thread);
      case BEST: return find_best(thread);
    }
  }

  // -- products ---------------------------------------------------------------------------------------------------------

  // Tokens by the block, so that the part of x that all panels read stays in the second-level cache.
  static long token_block(long depth) { return std::max(MR, 49152 / std::max(1l, depth) / MR * MR); }

  // The next panels for a thread: half of its even share of what is left, so that they follow one another in memory and
  // the last ones still even out.
  bool take_panels(std::atomic<long>& counter, long panels, long& first, long& last) const {
    first = counter.load();
    do {
      if (first >= panels) return false;
      last = first + std::max(1l, (panels - first) / (2 * b.threads));
    } while (!counter.compare_exchange_weak(first, last));
    return true;
  }

  // x as the products read it: as it is, or as bf16 in this thread's scratch where pairs are multiplied.
  static long row_length(long depth) { return panel_depth<T>(depth); }
  static long pair_floats(long depth) { return pairs<T> ? token_block(depth) * row_length(depth) / 2 : 0; }
  auto prepared(const float* x, long depth, long tokens, Thread thread) const {
    if constexpr (pairs<T>) {
      T* const own = reinterpret_cast<T*>(scratch + thread.number * scratch_floats + token_block(m.hidden) * NR);
      for (long token = 0; token < tokens; ++token) {
        T* to = own + token * row_length(depth);
        long i = 0;
        for (; i + W <= depth; i += W) store(to + i, load(x + token * depth + i));
        for (; i < row_length(depth); ++i) to[i] = i < depth ? to_bf16(x[token * depth + i]) : T{};
      }
      return static_cast<const T*>(own);
    } else {
      return x;
    }
  }

  // The input of a product in the forms that quantized parts read: [tokens][floats] of each, one form after the other.
  struct Prepared {
    long tokens;
    const float* at[3];
    long floats[3];
  };

  Prepared prepare_input(const Parts& parts, const float* x, long tokens, Thread thread) const {
    Prepared found{tokens, {}, {}};
    const long all = parts.prepared(tokens);
    if (!all) return found;
    const long depth = parts.at->depth;
    const bool own = tokens <= PRIVATE_TOKENS;
    float* to = own ? prepared_input + thread.number * tokens * all : prepared_input;
    for (long part = 0; part < parts.count; ++part) {
      const long first = parts.form_of(part), floats = prepared_floats(parts.at[part], tokens);
      found.floats[part] = floats, found.at[part] = first < part ? found.at[first] : to;
      if (first < part) continue;
      if (floats)
        for (long token = own ? 0 : thread.number; token < tokens; token += own ? 1 : thread.of)
          prepare(parts.at[part], tokens, x + token * depth, to + token * floats);
      to += tokens * floats;
    }
    if (!own) {
#pragma omp barrier
    }
    return found;
  }

  // use(token, left, right) of one panel for `some` tokens from `from`; rows: their input as plain products read it.
  template <class X, class Use>
  void multiply(const TrilemmaMatrix& matrix, long panel, const X* rows, const Prepared& in, long part, long from, long some,
                Thread thread, Use use) const {
    const char* at = static_cast<const char*>(matrix.panels) + panel * matrix.stride;
    const long length = row_length(matrix.depth);
    if (!matrix.bits) return panel_product(rows, length, 1, some, reinterpret_cast<const T*>(at), length, use);
    float *own = scratch + thread.number * scratch_floats, *out = own + result_at;
    quantized_panel(matrix, at, in.tokens, in.at[part] + from * in.floats[part], some, own + expanded_at, out);
    for (long token = 0; token < some; ++token) use(token, load(out + token * NR), load(out + token * NR + W));
  }

  // Products of all tokens with all panels of the parts. use(token, column, vector).
  template <class Use>
  void product(std::atomic<long>& counter, Thread thread, const float* x, Parts parts, const T* bias, Use use, long tokens) const {
    const long depth = parts.at->depth, block = token_block(depth), panels = parts.panels();
    const Prepared in = prepare_input(parts, x, tokens, thread);
    for (long first, last; take_panels(counter, panels, first, last);)
      for (long from = 0; from < tokens; from += block) {
        const long some = std::min(block, tokens - from);
        const auto* rows = prepared(x + from * depth, depth, parts.plain() ? some : 0, thread);
        for (long panel = first, part = 0, begin = 0; panel < last; ++panel) {
          while (panel - begin >= parts.panels_of(part)) begin += parts.panels_of(part++);
          multiply(parts.at[part], panel - begin, rows, in, part, from, some, thread,
                   [&](long token, vf left, vf right) {
                     const long column = panel * NR;
                     if (bias) left += load(bias + column), right += load(bias + column + W);
                     use(from + token, column, left), use(from + token, column + W, right);
                   });
        }
      }
  }

  void projection(std::atomic<long>& counter, Thread thread, const TrilemmaLayer& l, Parts parts, long from) const {
    const T* bias = static_cast<const T*>(l.qkv_bias);
    const auto use = [this, from](long token, long column, vf value) { store(qkv + token * width + from + column, value); };
    product(counter, thread, normed, parts, bias ? bias + from : nullptr, use, b.tokens);
  }

  // A product whose result is added to the hidden states: at once when fused, else by ADD.
  void into_hidden(std::atomic<long>& counter, Thread thread, const float* x, const TrilemmaMatrix& weight, const void* bias) const {
    const long columns = m.hidden;
    const auto use = [this, columns](long token, long column, vf value) {
      b.fused ? add_to(hidden + token * columns, column, columns, value) : put(delta + token * columns, column, columns, value);
    };
    product(counter, thread, x, {&weight, 1}, static_cast<const T*>(bias), use, b.tokens);
  }

  void logits(std::atomic<long>& counter, Thread thread) const {
    const auto use = [this](long row, long column, vf value) { put(b.logits + row * m.vocab, column, m.vocab, value); };
    product(counter, thread, normed, {&m.head, 1}, nullptr, use, b.wanted);
  }

  void find_best(Thread thread) const {
    for (long row = thread.number; row < b.wanted; row += thread.of) {
      const float *at = b.logits + row * m.vocab, *end = at + m.vocab;
      vf high = splat(-INFINITY);
      const float* p = at;
      for (; p + W <= end; p += W) high = larger(high, load(p));
      float highest = largest(high);
      for (; p < end; ++p) highest = std::max(highest, *p);
      const long place = std::find(at, end, highest) - at;
      b.best[row] = place < m.vocab ? place : 0;  // not found: no logit is a number
    }
  }

  // Gate (side 0) or up (side 1) alone.
  void half(std::atomic<long>& counter, Thread thread, const TrilemmaLayer& l, long side, float* to) const {
    const T* bias = static_cast<const T*>(l.gate_up_bias);
    const auto use = [this, to](long token, long column, vf value) { put(to + token * m.inner, column, m.inner, value); };
    product(counter, thread, normed, {l.gate_up + side, 1}, bias ? bias + side * whole_panels(m.inner) : nullptr, use, b.tokens);
  }

  static vf gate_of(vf gate, vf up_value) { return gate / (splat(1.0f) + exponential(-gate)) * up_value; }

  // inner = silu(gate) * up: a panel of gate is kept in this thread's scratch until up's comes.
  void gated(std::atomic<long>& counter, const TrilemmaLayer& l, Thread thread) const {
    const long depth = m.hidden, padded = whole_panels(m.inner), block = token_block(depth);
    const T* bias = static_cast<const T*>(l.gate_up_bias);
    float* gate = scratch + thread.number * scratch_floats;
    const Parts parts{l.gate_up, 2};
    const Prepared in = prepare_input(parts, normed, b.tokens, thread);
    for (long first, last; take_panels(counter, padded / NR, first, last);)
      for (long from = 0; from < b.tokens; from += block) {
        const long some = std::min(block, b.tokens - from);
        const auto* rows = prepared(normed + from * depth, depth, parts.plain() ? some : 0, thread);
        for (long panel = first; panel < last; ++panel) {
          const long column = panel * NR;
          multiply(l.gate_up[0], panel, rows, in, 0, from, some, thread, [&](long token, vf left, vf right) {
            if (bias) left += load(bias + column), right += load(bias + column + W);
            store(gate + token * NR, left), store(gate + token * NR + W, right);
          });
          multiply(l.gate_up[1], panel, rows, in, 1, from, some, thread, [&](long token, vf left, vf right) {
            if (bias) left += load(bias + padded + column), right += load(bias + padded + column + W);
            float* to = inner + (from + token) * m.inner;
            put(to, column, m.inner, gate_of(load(gate + token * NR), left));
            put(to, column + W, m.inner, gate_of(load(gate + token * NR + W), right));
          });
        }
      }
  }

  // Stores to a row whose end may lie inside the vector.
  static void put(float* row, long column, long limit, vf value) {
    if (column + W <= limit) return store(row + column, value);
    for (long lane = 0; column + lane < limit; ++lane) row[column + lane] = value[lane];
  }
  static void add_to(float* row, long column, long limit, vf value) {
    if (column + W <= limit) return store(row + column, load(row + column) + value);
    for (long lane = 0; column + lane < limit; ++lane) row[column + lane] += value[lane];
  }

  // -- token by token ---------------------------------------------------------------------------------------------------

  void embed(Thread thread) const {
    const long half = m.head_dim / 2;
    const T* table = static_cast<const T*>(m.embedding);
    for (const Sequence& s : sequences)
      for (long i = 0; i < s.count; ++i) {
        const long token = s.first_token + i;
        if (token % thread.of != thread.number) continue;
        for (long k = 0; k < half; ++k) {
          const float angle = float(s.start + i) * m.inverse_frequencies[k];
          cosines[token * half + k] = std::cos(angle) * float(m.attention_factor);
          sines[token * half + k] = std::sin(angle) * float(m.attention_factor);
        }
        const long id = b.token_ids[token];
        float* to = hidden + token * m.hidden;
        if (!table && m.lookup.bits) {
          quantized_row(m.lookup, id, to);
          continue;
        }
        const T* panel = static_cast<const T*>(m.lookup.panels) + id / NR * NR * panel_depth<T>(m.hidden);
        for (long k = 0; k < m.hidden; ++k) to[k] = to_float(table ? table[id * m.hidden + k] : panel[in_panel<T>(k, id % NR)]);
      }
  }

  static void norm_row(const float* from, float* to, const T* weight, long size, double epsilon) {
    vf squares = {};
    long i = 0;
    for (; i + W <= size; i += W) squares += load(from + i) * load(from + i);
    float total = sum(squares);
    for (; i < size; ++i) total += from[i] * from[i];
    const float scale = 1.0f / std::sqrt(total / float(size) + float(epsilon));
    for (i = 0; i + W <= size; i += W) store(to + i, load(from + i) * splat(scale) * load(weight + i));
    for (; i < size; ++i) to[i] = from[i] * scale * to_float(weight[i]);
  }

  void normalize(const void* weight, long tokens, Thread thread, const int32_t* places = nullptr) const {
    for (long token = thread.number; token < tokens; token += thread.of)
      norm_row(hidden + (places ? places[token] : token) * m.hidden, normed + token * m.hidden, static_cast<const T*>(weight),
               m.hidden, m.epsilon);
  }

  void final_norms(Thread thread) const {
    normalize(m.final_norm, b.wanted, thread, b.wanted_tokens);
    if (!b.hidden) return;
    for (long token = thread.number; token < b.tokens; token += thread.of)
      norm_row(hidden + token * m.hidden, b.hidden + token * m.hidden, static_cast<const T*>(m.final_norm), m.hidden, m.epsilon);
  }

  void add_delta(Thread thread) const {
    for (long token = thread.number; token < b.tokens; token += thread.of)
      for (long i = 0; i < m.hidden; ++i) hidden[token * m.hidden + i] += delta[token * m.hidden + i];
  }

  void activate(Thread thread) const {
    for (long token = thread.number; token < b.tokens; token += thread.of) {
      float *gate = inner + token * m.inner, *other = up + token * m.inner;
      long i = 0;
      for (; i + W <= m.inner; i += W) store(gate + i, gate_of(load(gate + i), load(other + i)));
      for (; i < m.inner; ++i) gate[i] = gate[i] / (1.0f + std::exp(-gate[i])) * other[i];
    }
  }

  // Halves of a head, in place: (a, b) -> (a cos - b sin, b cos + a sin).
  void rotate(float* head, long token, float scale) const {
    const long half = m.head_dim / 2;
    const float *c = cosines + token * half, *s = sines + token * half;
    for (long i = 0; i < half; ++i) {
      const float first = head[i], second = head[i + half];
      head[i] = (first * c[i] - second * s[i]) * scale, head[i + half] = (second * c[i] + first * s[i]) * scale;
    }
  }

  void rotate_and_write(const TrilemmaLayer& l, long layer, Thread thread, bool turn_heads, bool write) const {
    long piece = 0;
    for (const Sequence& s : sequences)
      for (long from = 0, to; from < s.count; from = to, ++piece) {
        to = from + (write ? attention_->together(s, from) : 1);
        if (piece % thread.of != thread.number) continue;
        if (turn_heads)
          for (long i = from; i < to; ++i) turn_token(l, s.first_token + i);
        if (write) attention_->write(layer, s, from, to);
      }
  }

  // Norms of query and key heads where the family has them, rotary positions, and the scale of the scores.
  void turn_token(const TrilemmaLayer& l, long token) const {
    const long dim = m.head_dim;
    const float scale = 1.0f / std::sqrt(float(dim));
    for (long head = 0; head < m.heads + m.kv_heads; ++head) {
      const bool is_query = head < m.heads;
      float* at = qkv + token * width + (is_query ? head * dim : key_at + (head - m.heads) * dim);
      const T* weight = static_cast<const T*>(is_query ? l.query_norm : l.key_norm);
      if (weight) norm_row(at, at, weight, dim, m.epsilon);
      rotate(at, token, is_query ? scale : 1.0f);
    }
  }
};

}  // namespace trilemma
