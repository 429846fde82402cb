// The next token of a row of logits, as core_engine/sampling.py defines it in float64, or that it can't be told. As in
// core_engine/shortlist.py, ids within exp(cut) of the likeliest (the head) are weighed in double and all others (the
// tail) in float32, whose error is bounded. A decision nearer to its edge than the error is left to the definition.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "vec.h"

namespace trilemma {

constexpr long UNDECIDED = -1, DEEPER = -2;  // DEEPER: not with this head
constexpr double HEAD_CUT = -12, LAST_CUT = -384;  // doubled until the head is enough
constexpr long WEIGHT_BLOCK = 256;  // ids whose weights are summed before the place of a draw is looked for
// Of the tail's sum: four float32 roundings of an exponent above -40 (what is below weighs nothing), 4 ulp of the
// exponential, and the additions within a block.
constexpr double TAIL_ERROR = (4 * 40 + 8 + WEIGHT_BLOCK / W + 8) / 16777216.0;
constexpr double SUM_ERROR = 1e-9;  // of a sum of float64 weights, over up to a million ids
constexpr double HALF_ULP = 1.0 / 16777216;

constexpr int D = W / 2;  // float64 in a vector
typedef double vd __attribute__((vector_size(D * 8)));
typedef double vd_at __attribute__((vector_size(D * 8), aligned(8), may_alias));
typedef int64_t vl __attribute__((vector_size(D * 8)));

// e^x to about 1e-14 of itself: as vec.h's, with the series up to r^12 / 12!.
inline vd exponential(vd x) {
  const vd least = vd{} - 700.0, most = vd{} + 700.0;
  x = x < least ? least : x > most ? most : x;
  constexpr double magic = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer, its own low bits are 0
  const vd shifted = x * 1.4426950408889634 + magic, whole = shifted - magic;
  const vd r = (x - whole * 0.693147180369123816490) - whole * 1.90821492927058770002e-10;
  vd y = r * (1.0 / 479001600) + 1.0 / 39916800;
  y = y * r + 1.0 / 3628800, y = y * r + 1.0 / 362880, y = y * r + 1.0 / 40320, y = y * r + 1.0 / 5040;
  y = y * r + 1.0 / 720, y = y * r + 1.0 / 120, y = y * r + 1.0 / 24, y = y * r + 1.0 / 6;
  y = y * r + 0.5, y = y * r + 1.0, y = y * r + 1.0;
  return (vd)((vl)y + ((vl)shifted << 52));
}

inline void exponentials(double* x, long count) {
  const long whole = count - count % D;
  for (long i = 0; i < whole; i += D) *reinterpret_cast<vd_at*>(x + i) = exponential(vd(*reinterpret_cast<vd_at*>(x + i)));
  double rest[D] = {};
  std::copy(x + whole, x + count, rest);
  *reinterpret_cast<vd_at*>(rest) = exponential(vd(*reinterpret_cast<vd_at*>(rest)));
  std::copy(rest, rest + count - whole, x + whole);
}

inline double sum_of(const double* x, long count) {
  double parts[8] = {};
  const long whole = count - count % 8;
  for (long i = 0; i < whole; i += 8)
    for (int j = 0; j < 8; ++j) parts[j] += x[i + j];
  for (long i = whole; i < count; ++i) parts[0] += x[i];
  return ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));
}

// The vector at place i of x; past the end, what weighs nothing.
inline vf piece(const float* x, long i, long count) {
  if (i + W <= count) return load(x + i);
  float room[W];
  for (long lane = 0; lane < W; ++lane) room[lane] = i + lane < count ? x[i + lane] : -std::numeric_limits<float>::infinity();
  return load(room);
}

// The maximum; NaN where anything is.
inline float maximum(const float* x, long count) {
  vf most[4];
  vi odd[4] = {};
  for (vf& one : most) one = splat(-std::numeric_limits<float>::infinity());
  for (long i = 0; i < count; i += 4 * W)
    for (int j = 0; j < 4; ++j) {
      const vf here = i + j * W < count ? piece(x, i + j * W, count) : most[j];
      most[j] = larger(most[j], here), odd[j] |= here != here;
    }
  const vi any = (odd[0] | odd[1]) | (odd[2] | odd[3]);
  for (int lane = 0; lane < W; ++lane)
    if (any[lane]) return std::numeric_limits<float>::quiet_NaN();
  return largest(larger(larger(most[0], most[1]), larger(most[2], most[3])));
}

// Append the places first + lane where x > limit, and return the count. ids has W to spare. `below` gets -1 elsewhere.
inline long append_above(vf x, vf limit, int32_t first, int32_t* ids, long count, vi& below) {
  below = ~(x > limit);
#if TRILEMMA_WIDTH == 16 && defined(__AVX512F__)
  const __mmask16 above = _mm512_cmp_ps_mask((__m512)x, (__m512)limit, _CMP_GT_OQ);
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  _mm512_storeu_si512(ids + count, _mm512_maskz_compress_epi32(above, _mm512_add_epi32(lanes, _mm512_set1_epi32(first))));
  return count + __builtin_popcount(above);
#else
  const vi above = x > limit;
  uint64_t pairs[W / 2], any = 0;
  std::memcpy(pairs, &above, sizeof pairs);
  for (const uint64_t pair : pairs) any |= pair;
  if (any)
    for (int lane = 0; lane < W; ++lane) ids[count] = first + lane, count -= above[lane];
  return count;
#endif
}

// Philox4x64-10 (Salmon et al. 2011) at the counter after {0, position, purpose, 0}, as numpy begins: the first of its
// words as a number in [0, 1).
inline double uniform(uint64_t seed, uint64_t sample_index, uint64_t position, uint64_t purpose) {
  uint64_t c[4] = {1, position, purpose, 0}, key[2] = {seed, sample_index};
  for (int round = 0; round < 10; ++round) {
    const unsigned __int128 first = (unsigned __int128)0xD2E7470EE14C6C93u * c[0];
    const unsigned __int128 second = (unsigned __int128)0xCA5A826395121157u * c[2];
    const uint64_t next[4] = {uint64_t(second >> 64) ^ c[1] ^ key[0], uint64_t(second), uint64_t(first >> 64) ^ c[3] ^ key[1], uint64_t(first)};
    std::copy(next, next + 4, c);
    key[0] += 0x9E3779B97F4A7C15u, key[1] += 0xBB67AE8584CAA73Bu;
  }
  return (c[0] >> 11) * (1.0 / 9007199254740992.0);
}

struct Filters {
  double temperature, top_p, min_p;  // temperature 0: the likeliest
  long top_k;
};

// Scores that bias, penalties and bans give some ids, ascending: exact, where the logits hold them rounded to float32.
// Rounding keeps order, so that a head by the rounded ones is one by the exact ones.
struct Changed {
  const int64_t* ids;
  const double* scores;
  long count;
};

// Chooses one row after another. Memory that no head reaches is never touched.
class Chooser {
 public:
  void make_room(long size) {
    if (size <= vocab_room) return;
    vocab_room = size;
    ids.reset(new int32_t[size + W]);
    scores.reset(new double[size]), weights.reset(new double[size]), ranked.reset(new double[size]);
    blocks.reset(new double[size / WEIGHT_BLOCK + 1]);
  }

  // logits [vocab], the changed ones in it. An id, or UNDECIDED.
  long choose(const float* logits, long vocab, const Changed& changed, const Filters& filters, double number) {
    x = logits, size = vocab, other = changed, f = filters;
    highest = maximum(x, size);
    if (!std::isfinite(highest)) return UNDECIDED;
    if (f.temperature == 0) return likeliest();
    if (number == 0) return UNDECIDED;
    sum_error = SUM_ERROR + std::abs(highest) / f.temperature * 0x1p-50;
    // Added by rounding changed scores to float32.
    tail_error = TAIL_ERROR + (other.count ? (std::abs(highest) / f.temperature + 40) * HALF_ULP : 0);
    for (cut = HEAD_CUT; cut >= LAST_CUT; cut *= 2) {
      weigh();
      const long token = decide(number);
      if (token != DEEPER) return token;
    }
    return UNDECIDED;
  }

 private:
  const float* x;
  long size, count = 0, vocab_room = 0;  // count: ids in the head, then those that filters leave
  Changed other;
  Filters f;
  double cut, sum_error, tail_error, tail, best;  // best: the highest exact score
  float highest;                                  // its float32, from which all exponents are counted
  std::unique_ptr<int32_t[]> ids;                 // ascending
  std::unique_ptr<double[]> scores, weights, ranked, blocks;  // of ids, and the tail's weight in each block of the vocabulary

  double exact(long id) const {
    const int64_t* found = std::lower_bound(other.ids, other.ids + other.count, int64_t(id));
    return found != other.ids + other.count && *found == id ? other.scores[found - other.ids] : double(x[id]);
  }

  long likeliest() const {
    long found = UNDECIDED;
    for (long id = 0; id < size; ++id)
      if (x[id] == highest && (found < 0 || exact(id) > exact(found))) found = id;
    return found;
  }

  void weigh() {
    const vf most = splat(highest), scale = splat(float(1 / f.temperature)), limit = splat(float(cut));
    count = 0, tail = 0;
    for (long first = 0; first < size; first += WEIGHT_BLOCK) {
      vf sums{};
      for (long i = first; i < std::min(size, first + WEIGHT_BLOCK); i += W) {
        const vf exponents = (piece(x, i, size) - most) * scale;
        vi below;
        count = append_above(exponents, limit, i, ids.get(), count, below);
        sums += (vf)((vi)exponential(exponents) & below);
      }
      tail += blocks[first / WEIGHT_BLOCK] = sum(sums);
    }
    for (long i = 0; i < count; ++i) scores[i] = x[ids[i]];
    for (long j = 0; j < other.count; ++j) {
      const int32_t* const found = std::lower_bound(ids.get(), ids.get() + count, int32_t(other.ids[j]));
      if (found != ids.get() + count && *found == other.ids[j]) scores[found - ids.get()] = other.scores[j];
    }
    best = *std::max_element(scores.get(), scores.get() + count);
    for (long i = 0; i < count; ++i) weights[i] = (scores[i] - highest) / f.temperature;
    exponentials(weights.get(), count);
  }

  template <class Keep>
  void keep(Keep stays) {
    long kept = 0;
    for (long i = 0; i < count; ++i) {
      const bool stay = stays(i);
      ids[kept] = ids[i], scores[kept] = scores[i], weights[kept] = weights[i], kept += stay;
    }
    count = kept;
  }

  // Whether a filter has left out the tail already.
  long decide(double number) {
    if (std::abs(best - highest) > f.temperature) return UNDECIDED;  // weights that are counted from too far away
    bool filtered = false;
    if (f.min_p > 0) {
      if (const long why = by_min_p()) return why;
      filtered = true;
    }
    if (f.top_k > 0 && f.top_k < (filtered ? count : size)) {
      if (count < f.top_k) return DEEPER;
      by_top_k();
      filtered = true;
    }
    if (f.top_p < 1) {
      if (const long why = by_top_p(filtered)) return why;
      filtered = true;
    }
    return filtered ? draw(number) : draw_from_all(number);
  }

  // The filters return 0, or why they can't tell.
  long by_min_p() {
    const double least = f.min_p * std::exp((best - highest) / f.temperature);
    if (least < 2 * std::exp(cut)) return DEEPER;
    for (long i = 0; i < count; ++i)
      if (std::abs(weights[i] - least) <= sum_error * least && scores[i] != best) return UNDECIDED;
    keep([&](long i) { return weights[i] > least || scores[i] == best; });
    return 0;
  }

  // By the scores themselves: equal ones are together in the head or out of it.
  void by_top_k() {
    std::copy(scores.get(), scores.get() + count, ranked.get());
    std::nth_element(ranked.get(), ranked.get() + f.top_k - 1, ranked.get() + count, std::greater<double>());
    const double least = ranked[f.top_k - 1];
    keep([&](long i) { return scores[i] >= least; });
  }

  // A quarter of a binary order of magnitude: ids of one are ranked, the sums of the others are enough.
  static long bucket_of(double weight) {
    int64_t bits;
    std::memcpy(&bits, &weight, 8);
    return std::max(int64_t(0), (bits >> 50) - ((1023 - BUCKETS / 4 + 2) * 4l));
  }
  static constexpr long BUCKETS = 320;  // from 2^-78 and all below, which weigh nothing beside the likeliest, to 4, above e

  long by_top_p(bool filtered) {
    const double head = sum_of(weights.get(), count), total = filtered ? head : head + tail, mass = f.top_p * total;
    const double error = (filtered ? 0 : tail_error * tail) + sum_error * total;
    const long unclear = filtered ? UNDECIDED : DEEPER;
    if (head <= mass + error) return unclear;
    double sums[BUCKETS] = {}, above = 0;
    for (long i = 0; i < count; ++i) sums[bucket_of(weights[i])] += weights[i];
    long edge = BUCKETS - 1;
    for (; edge > 0 && above + sums[edge] <= mass; --edge) above += sums[edge];
    long in_edge = 0;
    double next = filtered ? 0 : std::exp(cut) * (1 + tail_error), least = 0;
    for (long i = 0; i < count; ++i) {
      const long bucket = bucket_of(weights[i]);
      ranked[in_edge] = weights[i], in_edge += bucket == edge;
      next = bucket < edge ? std::max(next, weights[i]) : next;
    }
    std::sort(ranked.get(), ranked.get() + in_edge, std::greater<double>());
    for (long i = 0; i < in_edge && least == 0; ++i) {
      if (above + ranked[i] > mass) {
        least = ranked[i];
        if (i + 1 < in_edge) next = ranked[i + 1];
        if (above + least - mass <= error || (above > 0 && mass - above <= error)) return unclear;
      } else {
        above += ranked[i];
      }
    }
    if (least == 0 || least - next <= sum_error * least) return unclear;
    keep([&](long i) { return weights[i] >= least; });
    return 0;
  }

  // Where the running sum of `before` and `list` passes `goal`: a place, or UNDECIDED nearer to an edge than `error`.
  static long place_of(const double* list, long length, double goal, double error, double before = 0) {
    long i = 0;
    for (double next; i + 64 <= length && (next = before + sum_of(list + i, 64)) <= goal; i += 64) before = next;
    for (; i < length && before + list[i] <= goal; ++i) before += list[i];
    if (i == length || before + list[i] - goal <= error || (before > 0 && goal - before <= error)) return UNDECIDED;
    return i;
  }

  long draw(double number) const {
    const double total = sum_of(weights.get(), count);
    const long place = place_of(weights.get(), count, number * total, sum_error * total);
    return place < 0 ? UNDECIDED : ids[place];
  }

  long draw_from_all(double number) {
    const long last = (size - 1) / WEIGHT_BLOCK;
    const double total = tail + sum_of(weights.get(), count), goal = number * total;
    const double error = 2 * tail_error * tail + sum_error * total;
    for (long i = 0; i < count; ++i) blocks[ids[i] / WEIGHT_BLOCK] += weights[i];
    long block = 0;
    double before = 0;
    for (; block < last && before + blocks[block] <= goal; ++block) before += blocks[block];
    double within[WEIGHT_BLOCK];
    const long first = block * WEIGHT_BLOCK, length = std::min(WEIGHT_BLOCK, size - first);
    for (long i = 0; i < length; ++i) within[i] = x[first + i];
    for (const int64_t* id = std::lower_bound(other.ids, other.ids + other.count, int64_t(first));
         id != other.ids + other.count && *id < first + length; ++id)
      within[*id - first] = other.scores[id - other.ids];
    for (long i = 0; i < length; ++i) within[i] = (within[i] - highest) / f.temperature;
    exponentials(within, length);
    const long place = place_of(within, length, goal, error, before);
    return place < 0 ? DEEPER : first + place;
  }
};

}  // namespace trilemma
