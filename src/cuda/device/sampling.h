// Draws a token from each row of logits where the row lies: what sampling/sampler.cc does, to the
// bit. A row is cut into slices, a block for each; what the blocks of a row found together, the
// last of them to be done puts into the row's state for the next launch:
//   of the row as it came, if anyone wants to know: scan, weigh, narrow, gather;
//   edit;  scan, weigh, narrow (once for top_k, once for top_p), pick.
// A front is the best tokens by rank (the higher logit first, of equals the lower id): its end is
// found by counting what is asked for (tokens, or their weight) in buckets of ever narrower ranges.
#pragma once

#include "cuda/device/gpu.h"
#include "cuda/operations.h"
#include "kernels/logit_weight.h"

namespace pelton::cuda {

inline constexpr int kSampleThreads = 512;
inline constexpr int kSampleWarps = kSampleThreads / 32;
inline constexpr int kSliceEach = kSliceLogits / kSampleThreads;  // logits of a thread, in a row
inline constexpr int kBucketsEach = kBuckets / kSampleThreads;

inline constexpr float kFiniteMax = 3.402823466e38f;
inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr uint32_t kLowestKey = 0x00800000;  // of -kFiniteMax; -infinity's is one less

// Rises with the logit; equal where the logits are (the sum turns -0 into 0).
PELTON_DEVICE uint32_t rank_key(float logit) {
  const uint32_t bits = float_bits(logit + 0.0f);
  const auto sign = static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31);
  return bits ^ (sign | 0x80000000u);
}
PELTON_DEVICE float logit_of(uint32_t key) {
  return float_of(key >> 31 != 0 ? key ^ 0x80000000u : ~key);
}

// A power of two or less, as whole units of 2^-41, to the nearest, of two the even one.
PELTON_DEVICE uint64_t units_of(uint32_t bits) {
  const uint32_t mantissa = (bits & 0x7FFFFFu) | 0x800000u;
  const int left = static_cast<int>(bits >> 23) - 127 - 23 + 41;
  if (left >= 0) return uint64_t{mantissa} << left;
  if (left < -24) return 0;
  const int right = -left;
  const uint32_t whole = mantissa >> right;
  const uint32_t rest = mantissa & ((1u << right) - 1);
  const uint32_t half = 1u << (right - 1);
  return whole + (rest > half || (rest == half && (whole & 1) != 0) ? 1 : 0);
}

// kernels/logit_rows.h: Mass of a logit.
PELTON_DEVICE uint64_t weight_of(float logit, float highest, float sharpness) {
  const float scaled = (logit - highest) * sharpness;
  const float y = scaled > kernels::kExponentMin ? scaled : kernels::kExponentMin;
  const float shifted = y + kernels::kRoundingShift;
  const float f = y - (shifted - kernels::kRoundingShift);
  constexpr float kTerms[] = {kernels::kExp2Terms[0], kernels::kExp2Terms[1],
                              kernels::kExp2Terms[2], kernels::kExp2Terms[3],
                              kernels::kExp2Terms[4]};  // nvcc: a device has no arrays of the host
  float power = fused(kTerms[4], f, kTerms[3]);
  power = fused(power, f, kTerms[2]);
  power = fused(power, f, kTerms[1]);
  power = fused(power, f, kTerms[0]);
  power = fused(power, f, 1.0f);
  return units_of(float_bits(power) + (float_bits(shifted) << 23));
}

// What the blocks of one row exchange.
struct SampleShared {
  uint64_t masses[kBuckets];
  uint32_t counts[kBuckets];
  uint64_t warps[2][kSampleWarps];
  uint64_t found_need;
  uint64_t found_above;
  uint64_t found_mass;
  uint32_t found_count;
  int32_t found_at;
  int32_t is_last;
  int32_t token;
  float raw;
};

// One row of one launch.
struct SampleRow {
  const RowSampling& params;
  SampleState& state;
  const float* logits;
  const uint32_t* mask;  // null: all may be chosen
  float sharpness;
  int row;
  int begin;  // of this block's slice
  int end;

  PELTON_DEVICE bool has(int token, float logit) const {
    if (!(logit > minus_infinity())) return false;
    return mask == nullptr || (mask[token / 32] >> (token % 32) & 1) != 0;
  }
  PELTON_DEVICE uint64_t weight(float logit) const {
    return weight_of(logit, state.highest, sharpness);
  }
  // Of the first cut: 32 buckets for each halving of the weight.
  PELTON_DEVICE int bucket(float logit) const {
    const float below = (state.highest - logit) * sharpness * 32.0f;
    return static_cast<int>(minimum(below, static_cast<float>(kBuckets - 1)));
  }
};

PELTON_DEVICE bool takes_part(const Sample& args, const RowSampling& params) {
  return params.on_host == 0 && (args.reports == 0 || params.reported >= 0);
}

PELTON_DEVICE SampleRow sample_row(const Sample& args) {
  const int row = block_y();
  const RowSampling& params = args.rows[row];
  const int vocab = args.counts[1];
  const int begin = block_x() * kSliceLogits;
  const bool is_masked = args.reports == 0 && params.mask >= 0;
  return {params,
          args.states[row],
          args.logits + row * args.stride,
          is_masked ? reinterpret_cast<const uint32_t*>(args.masks + params.mask) : nullptr,
          args.reports != 0 ? kLog2E : params.sharpness,
          row,
          begin,
          begin + kSliceLogits < vocab ? begin + kSliceLogits : vocab};
}

PELTON_DEVICE uint64_t warp_sum(uint64_t value) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

// Of all threads. `room`: one for each warp, not in use by anyone else until the next barrier.
PELTON_DEVICE uint64_t block_sum(uint64_t value, uint64_t* room) {
  value = warp_sum(value);
  if (thread_index() % 32 == 0) room[thread_index() / 32] = value;
  sync_block();
  uint64_t sum = 0;
  for (int warp = 0; warp < kSampleWarps; ++warp) sum += room[warp];
  return sum;
}

// Of the threads before.
PELTON_DEVICE uint64_t sum_before(uint64_t value, uint64_t* room) {
  const int lane = thread_index() % 32;
  uint64_t sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint64_t below = shuffle_from(sum, lane >= step ? lane - step : lane);
    if (lane >= step) sum += below;
  }
  if (lane == 31) room[thread_index() / 32] = sum;
  sync_block();
  uint64_t before = sum - value;
  for (int warp = 0; warp < thread_index() / 32; ++warp) before += room[warp];
  return before;
}

// Whether this block is the last of its row to be done: then it sees what all have written.
PELTON_DEVICE bool is_last_block(SampleState& state, int blocks, SampleShared& shared) {
  fence_device();
  sync_block();
  if (thread_index() == 0) {
    shared.is_last = atomic_add(&state.arrived, 1u) + 1 == static_cast<uint32_t>(blocks) ? 1 : 0;
  }
  sync_block();
  if (shared.is_last == 0) return false;
  fence_device();
  if (thread_index() == 0) state.arrived = 0;
  return true;
}

PELTON_DEVICE void clear_buckets(SampleShared& shared) {
  for (int i = thread_index(); i < kBuckets; i += kSampleThreads) {
    shared.masses[i] = 0;
    shared.counts[i] = 0;
  }
  sync_block();
}

PELTON_DEVICE void add_buckets(const SampleShared& shared, SampleBuckets& to) {
  sync_block();
  for (int i = thread_index(); i < kBuckets; i += kSampleThreads) {
    if (shared.counts[i] == 0) continue;
    atomic_add(&to.masses[i], shared.masses[i]);
    atomic_add(&to.counts[i], shared.counts[i]);
  }
}

// The first bucket with which `need` tokens, or so much mass, are together: into shared.found_*.
// found_at is kBuckets if all are less.
PELTON_DEVICE void find_bucket(const SampleBuckets& buckets, Cut cut, uint64_t need,
                               SampleShared& shared) {
  const int first = thread_index() * kBucketsEach;
  uint64_t masses[kBucketsEach];
  uint32_t counts[kBucketsEach];
  uint64_t own_mass = 0;
  uint64_t own_count = 0;
#pragma unroll
  for (int i = 0; i < kBucketsEach; ++i) {
    masses[i] = load_fresh(&buckets.masses[first + i]);
    counts[i] = load_fresh(&buckets.counts[first + i]);
    own_mass += masses[i];
    own_count += counts[i];
  }
  if (thread_index() == 0) shared.found_at = kBuckets;
  uint64_t mass_before = sum_before(own_mass, shared.warps[0]);  // and a barrier
  const uint64_t count_before = sum_before(own_count, shared.warps[1]);
  const bool by_mass = cut == Cut::kMass;
  uint64_t before = by_mass ? mass_before : count_before;
  const uint64_t own = by_mass ? own_mass : own_count;
  if (before < need && need <= before + own) {
#pragma unroll
    for (int i = 0; i < kBucketsEach; ++i) {
      const uint64_t measure = by_mass ? masses[i] : counts[i];
      if (before < need && need <= before + measure) {
        shared.found_at = first + i;
        shared.found_need = need - before;
        shared.found_above = mass_before;
        shared.found_mass = masses[i];
        shared.found_count = counts[i];
      }
      before += measure;
      mass_before += masses[i];
    }
  }
  sync_block();
}

// A bucket of the first cut as a range of keys: the lowest and the highest that fall into it.
PELTON_DEVICE uint32_t lowest_key_of(const SampleRow& row, int bucket) {
  uint32_t low = kLowestKey;
  uint32_t high = rank_key(row.state.highest);
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (row.bucket(logit_of(middle)) <= bucket) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}
PELTON_DEVICE uint32_t highest_key_of(const SampleRow& row, int bucket) {
  uint32_t low = kLowestKey;
  uint32_t high = rank_key(row.state.highest);
  while (low < high) {
    const uint32_t middle = high - (high - low) / 2;
    if (row.bucket(logit_of(middle)) >= bucket) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Looks for the end of a front of `need` by `cut`, from the first buckets on.
PELTON_DEVICE void begin_cut(const SampleRow& row, const SampleBuckets& first, Cut cut,
                             uint64_t need, SampleShared& shared) {
  find_bucket(first, cut, need, shared);
  if (thread_index() != 0) return;
  SampleState& state = row.state;
  if (shared.found_at == kBuckets) {  // the front is everything
    state.cut = Cut::kNone;
    state.last_key = 0;
    return;
  }
  state.cut = cut;
  state.need = shared.found_need;
  state.mass_above = shared.found_above;
  state.low_key = lowest_key_of(row, shared.found_at);
  state.high_key = highest_key_of(row, shared.found_at);
}

// The least mass that is at least top_p of all, and one at least.
PELTON_DEVICE uint64_t mass_kept(uint64_t total, uint64_t share) {
  const unsigned __int128 product = static_cast<unsigned __int128>(total) * share;
  const auto kept = static_cast<uint64_t>((product + ((uint64_t{1} << 53) - 1)) >> 53);
  return kept > 0 ? kept : 1;
}

// ---- launches -------------------------------------------------------------------------------

PELTON_DEVICE bool is_row(const Sample& args) {
  return block_y() < args.counts[0] && takes_part(args, args.rows[block_y()]);
}

// What the token's logit was in the row as it came. All threads; `shared.raw` then.
PELTON_DEVICE void find_raw(const Sample& args, const SampleRow& row, int token,
                            SampleShared& shared) {
  if (thread_index() == 0) shared.raw = row.logits[token];
  sync_block();
  const RowSampling& params = row.params;
  // The first to change it saw what was there.
  for (int i = thread_index(); i < params.bias_count; i += kSampleThreads) {
    const int at = params.biases + i;
    if (args.edits[at].token == token) shared.raw = args.before[at];
  }
  sync_block();
  for (int i = thread_index(); i < params.penalty_count; i += kSampleThreads) {
    const int at = params.penalties + i;
    if (args.edits[at].token == token) shared.raw = args.before[at];
  }
  sync_block();
}

PELTON_DEVICE void report_token(const Sample& args, const SampleRow& row, int token,
                                SampleShared& shared) {
  if (row.params.reported >= 0) find_raw(args, row, token, shared);
  if (thread_index() != 0) return;
  args.results[row.row].token = token;
  if (row.params.reported >= 0) args.results[row.row].raw_logit = shared.raw;
}

// The highest logit, and whether all are numbers.
PELTON_KERNEL(kSampleThreads) scan_kernel(Sample args) {
  launch_dependents();
  wait_for_predecessors();
  if (!is_row(args)) return;
  const SampleRow row = sample_row(args);
  SampleShared& shared = *shared_memory<SampleShared>();
  uint64_t best = 0;
  bool is_broken = false;
  for (int i = row.begin + thread_index(); i < row.end; i += kSampleThreads) {
    const float logit = row.logits[i];
    is_broken = is_broken || !(logit <= kFiniteMax);
    if (!row.has(i, logit)) continue;
    const uint64_t rank = uint64_t{rank_key(logit)} << 32 | ~static_cast<uint32_t>(i);
    best = rank > best ? rank : best;
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    const uint64_t other = shuffle_xor(best, mask);
    best = other > best ? other : best;
  }
  const bool warp_is_broken = vote(is_broken) != 0;
  if (thread_index() % 32 == 0) {
    if (best != 0) atomic_max(&row.state.best, best);
    if (warp_is_broken) atomic_max(&row.state.broken, 1u);
  }
  if (!is_last_block(row.state, args.slices, shared)) return;
  best = load_fresh(&row.state.best);
  const bool is_usable = load_fresh(&row.state.broken) == 0 && best != 0;
  sync_block();
  const bool is_greedy = args.reports == 0 && row.sharpness == 0;
  if (thread_index() == 0) {
    SampleState& state = row.state;
    state.best = 0;
    state.broken = 0;
    state.is_open = is_usable && !is_greedy ? 1 : 0;
    state.highest = logit_of(static_cast<uint32_t>(best >> 32));
    state.cut = Cut::kNone;
    state.last_key = 0;
    state.equals = 0;
    state.gathered = 0;
    SampledRow& result = args.results[row.row];
    if (args.reports != 0) {
      result.raw_highest = state.highest;
      result.raw_mass = 0;
      result.reported = 0;
    } else {
      result.token = -1;
    }
  }
  if (!is_usable || !is_greedy) return;
  report_token(args, row, static_cast<int>(~static_cast<uint32_t>(best)), shared);
}

PELTON_DEVICE bool cuts_tokens(const Sample& args, const RowSampling& params) {
  if (args.reports != 0) return params.reported > 0;
  return params.top_k > 0 && params.top_k < args.counts[1];
}
PELTON_DEVICE bool cuts_mass(const Sample& args, const RowSampling& params) {
  return args.reports == 0 && params.top_p_share > 0;
}

// All logits into the first buckets, and the first cut.
PELTON_KERNEL(kSampleThreads) weigh_kernel(Sample args) {
  launch_dependents();
  wait_for_predecessors();
  if (!is_row(args)) return;
  const SampleRow row = sample_row(args);
  const bool cuts_count = cuts_tokens(args, row.params);
  const bool cuts_share = cuts_mass(args, row.params);
  if (row.state.is_open == 0 || (args.reports == 0 && !cuts_count && !cuts_share)) return;
  SampleShared& shared = *shared_memory<SampleShared>();
  clear_buckets(shared);
  for (int i = row.begin + thread_index(); i < row.end; i += kSampleThreads) {
    const float logit = row.logits[i];
    if (!row.has(i, logit)) continue;
    const int bucket = row.bucket(logit);
    atomic_add(&shared.masses[bucket], row.weight(logit));
    atomic_add(&shared.counts[bucket], 1u);
  }
  SampleBuckets& first = args.buckets[2 * row.row];
  add_buckets(shared, first);
  if (!is_last_block(row.state, args.slices, shared)) return;
  uint64_t total = 0;
  for (int i = thread_index(); i < kBuckets; i += kSampleThreads) {
    total += load_fresh(&first.masses[i]);
  }
  total = block_sum(total, shared.warps[0]);
  sync_block();
  if (args.reports != 0 && thread_index() == 0) args.results[row.row].raw_mass = total;
  if (cuts_count) {
    const int count = args.reports != 0 ? row.params.reported : row.params.top_k;
    begin_cut(row, first, Cut::kCount, static_cast<uint64_t>(count), shared);
    sync_block();
    if (shared.found_at < kBuckets || !cuts_share) return;
  }
  if (cuts_share) {
    begin_cut(row, first, Cut::kMass, mass_kept(total, row.params.top_p_share), shared);
  }
}

// The range in which a front ends becomes one of its 2048 parts; a part of one key is the end.
PELTON_KERNEL(kSampleThreads) narrow_kernel(Sample args) {
  launch_dependents();
  wait_for_predecessors();
  if (!is_row(args)) return;
  const SampleRow row = sample_row(args);
  SampleState& state = row.state;
  if (state.is_open == 0 || state.cut == Cut::kNone) return;
  SampleShared& shared = *shared_memory<SampleShared>();
  clear_buckets(shared);
  const uint32_t low = state.low_key;
  const uint32_t high = state.high_key;
  constexpr int kBucketBits = 11;
  static_assert(kBuckets == 1 << kBucketBits);
  const int width = 32 - leading_zeros(high - low);
  const int shift = width > kBucketBits ? width - kBucketBits : 0;
  for (int i = row.begin + thread_index(); i < row.end; i += kSampleThreads) {
    const float logit = row.logits[i];
    if (!row.has(i, logit)) continue;
    const uint32_t key = rank_key(logit);
    if (key < low || key > high) continue;
    atomic_add(&shared.masses[(high - key) >> shift], row.weight(logit));
    atomic_add(&shared.counts[(high - key) >> shift], 1u);
  }
  SampleBuckets& finer = args.buckets[2 * row.row + 1];
  add_buckets(shared, finer);
  if (!is_last_block(state, args.slices, shared)) return;
  const Cut cut = state.cut;
  find_bucket(finer, cut, state.need, shared);
  for (int i = thread_index(); i < kBuckets; i += kSampleThreads) {
    finer.masses[i] = 0;
    finer.counts[i] = 0;
  }
  if (thread_index() == 0) {
    state.mass_above += shared.found_above;
    state.need = shared.found_need;
    const uint32_t first_below = static_cast<uint32_t>(shared.found_at) << shift;
    const uint32_t last_below = first_below + ((1u << shift) - 1);
    state.low_key = last_below < high - low ? high - last_below : low;
    state.high_key = high - first_below;
    if (shift == 0) {
      const uint64_t each = shared.found_mass / shared.found_count;
      state.cut = Cut::kNone;
      state.last_key = state.high_key;
      state.equals = cut == Cut::kMass ? (state.need + each - 1) / each : state.need;
      state.mass_above += state.equals * each;
    }
  }
  sync_block();
  if (shift != 0 || cut != Cut::kCount || !cuts_mass(args, row.params)) return;
  const uint64_t share = mass_kept(state.mass_above, row.params.top_p_share);
  begin_cut(row, args.buckets[2 * row.row], Cut::kMass, share, shared);
}

PELTON_DEVICE void clear_first(const Sample& args, int row) {
  SampleBuckets& first = args.buckets[2 * row];
  for (int i = thread_index(); i < kBuckets; i += kSampleThreads) {
    first.masses[i] = 0;
    first.counts[i] = 0;
  }
}

PELTON_DEVICE bool is_equal(const SampleRow& row, int token, float logit) {
  return row.has(token, logit) && rank_key(logit) == row.state.last_key;
}

// The tokens of the front, for whoever wants to know; of those that equal its last, the lowest.
PELTON_KERNEL(kSampleThreads) gather_kernel(Sample args) {
  launch_dependents();
  wait_for_predecessors();
  if (!is_row(args)) return;
  const SampleRow row = sample_row(args);
  SampleState& state = row.state;
  if (state.is_open == 0) return;
  SampleShared& shared = *shared_memory<SampleShared>();
  ReportedToken* const to = args.reported + row.row * kReportedMax;
  const bool wants = row.params.reported > 0;
  uint64_t equals = 0;
  for (int i = row.begin + thread_index(); wants && i < row.end; i += kSampleThreads) {
    const float logit = row.logits[i];
    if (!row.has(i, logit) || rank_key(logit) < state.last_key) continue;
    if (rank_key(logit) == state.last_key) {
      ++equals;
    } else {
      const uint32_t at = atomic_add(&state.gathered, 1u);
      if (at < kReportedMax) to[at] = {i, logit};
    }
  }
  equals = block_sum(equals, shared.warps[0]);
  if (thread_index() == 0) args.slice_equals[row.row * args.slices + block_x()] = equals;
  if (!is_last_block(state, args.slices, shared)) return;
  clear_first(args, row.row);
  const uint32_t above = load_fresh(&state.gathered);
  uint64_t counted = 0;  // of the equals
  for (int slice = 0; slice < args.slices && counted < state.equals; ++slice) {
    if (load_fresh(&args.slice_equals[row.row * args.slices + slice]) == 0) continue;
    const int begin = slice * kSliceLogits + thread_index() * kSliceEach;
    const int vocab = args.counts[1];
    const int end = begin + kSliceEach < vocab ? begin + kSliceEach : vocab;
    uint64_t own = 0;
    for (int i = begin; i < end; ++i) own += is_equal(row, i, row.logits[i]) ? 1 : 0;
    sync_block();
    uint64_t place = counted + sum_before(own, shared.warps[1]);
    for (int i = begin; i < end; ++i) {
      if (!is_equal(row, i, row.logits[i])) continue;
      if (place < state.equals && above + place < kReportedMax) {
        to[above + place] = {i, row.logits[i]};
      }
      ++place;
    }
    counted += load_fresh(&args.slice_equals[row.row * args.slices + slice]);
  }
  if (thread_index() == 0) {
    counted = counted < state.equals ? counted : state.equals;
    args.results[row.row].reported = static_cast<int32_t>(above + counted);
  }
}

// The kept tokens stand in a row in order of id, each as wide as its weight; the random number
// points at a place in it.
PELTON_KERNEL(kSampleThreads) pick_kernel(Sample args) {
  launch_dependents();
  wait_for_predecessors();
  if (!is_row(args)) return;
  const SampleRow row = sample_row(args);
  SampleState& state = row.state;
  if (state.is_open == 0) return;
  SampleShared& shared = *shared_memory<SampleShared>();
  const auto kept_weight = [&](float logit) {
    const uint64_t weight = row.weight(logit);
    return weight >= row.params.least_mass ? weight : 0;
  };
  uint64_t mass = 0;
  uint64_t equals = 0;
  for (int i = row.begin + thread_index(); i < row.end; i += kSampleThreads) {
    const float logit = row.logits[i];
    if (!row.has(i, logit)) continue;
    const uint32_t key = rank_key(logit);
    if (key > state.last_key) mass += kept_weight(logit);
    if (key == state.last_key) ++equals;
  }
  mass = block_sum(mass, shared.warps[0]);
  equals = block_sum(equals, shared.warps[1]);
  const int64_t slices = int64_t{row.row} * args.slices;
  if (thread_index() == 0) {
    args.slice_masses[slices + block_x()] = mass;
    args.slice_equals[slices + block_x()] = equals;
  }
  if (!is_last_block(state, args.slices, shared)) return;
  if (cuts_tokens(args, row.params) || cuts_mass(args, row.params)) clear_first(args, row.row);
  const uint64_t each = state.last_key >= kLowestKey ? kept_weight(logit_of(state.last_key)) : 0;
  const auto slice_mass = [&](int slice, uint64_t equals_left, uint64_t& equals_here) {
    equals_here = load_fresh(&args.slice_equals[slices + slice]);
    if (equals_here > equals_left) equals_here = equals_left;
    return load_fresh(&args.slice_masses[slices + slice]) + equals_here * each;
  };
  // Every thread comes to the same slice.
  uint64_t left = state.equals;
  uint64_t here = 0;
  uint64_t total = 0;
  for (int slice = 0; slice < args.slices; ++slice) {
    total += slice_mass(slice, left, here);
    left -= here;
  }
  auto target =
      static_cast<uint64_t>((static_cast<unsigned __int128>(total) * row.params.random) >> 64);
  left = state.equals;
  int slice = 0;
  for (; slice + 1 < args.slices; ++slice) {
    const uint64_t its = slice_mass(slice, left, here);
    if (target < its) break;
    target -= its;
    left -= here;
  }

  const int begin = slice * kSliceLogits + thread_index() * kSliceEach;
  const int vocab = args.counts[1];
  const int end = begin + kSliceEach < vocab ? begin + kSliceEach : vocab;
  uint64_t own_equals = 0;
  for (int i = begin; i < end; ++i) own_equals += is_equal(row, i, row.logits[i]) ? 1 : 0;
  sync_block();
  const uint64_t equals_before = sum_before(own_equals, shared.warps[0]);
  uint64_t place = equals_before;
  const auto mass_at = [&](int i) -> uint64_t {
    const float logit = row.logits[i];
    if (!row.has(i, logit) || rank_key(logit) < state.last_key) return 0;
    if (rank_key(logit) == state.last_key && place++ >= left) return 0;
    return kept_weight(logit);
  };
  uint64_t own_mass = 0;
  for (int i = begin; i < end; ++i) own_mass += mass_at(i);
  uint64_t sum = sum_before(own_mass, shared.warps[1]);
  if (sum <= target && target < sum + own_mass) {
    place = equals_before;
    for (int i = begin; i < end; ++i) {
      const uint64_t weight = mass_at(i);
      if (sum <= target && target < sum + weight) shared.token = i;
      sum += weight;
    }
  }
  sync_block();
  report_token(args, row, shared.token, shared);
}

// The last penalty may be of the token that the step before drew: it takes its place, or joins the
// edit that counts it already.
PELTON_DEVICE void count_latest(const Sample& args, const RowSampling& params) {
  if (params.penalty_count == 0) return;
  LogitEdit* const penalties = args.edits + params.penalties;
  LogitEdit& last = penalties[params.penalty_count - 1];
  if (last.token >= 0) return;
  const int latest = args.results[~last.token].token;
  sync_block();  // all have read it
  if (thread_index() == 0) last.token = latest;
  sync_block();
  for (int i = thread_index(); i < params.penalty_count - 1; i += kSampleThreads) {
    if (penalties[i].token != latest) continue;
    ++penalties[i].in_output;
    last.token = -1;
  }
  sync_block();
}

// Penalties, then biases, then bans; a row is one block's.
PELTON_KERNEL(kSampleThreads) edit_kernel(Sample args) {
  launch_dependents();
  wait_for_predecessors();
  const int index = block_x();
  if (index >= args.counts[0]) return;
  const RowSampling& params = args.rows[index];
  if (params.on_host != 0) return;
  float* const logits = args.logits + index * args.stride;
  const auto for_each = [&](int first, int count, auto change) {
    for (int i = thread_index(); i < count; i += kSampleThreads) {
      const LogitEdit edit = args.edits[first + i];
      if (edit.token < 0 || edit.token >= args.counts[1]) continue;
      float& logit = logits[edit.token];
      args.before[first + i] = logit;
      logit = change(logit, edit);
    }
    sync_block();
  };
  count_latest(args, params);
  for_each(params.penalties, params.penalty_count, [&](float logit, const LogitEdit& edit) {
    if (!(logit >= -kFiniteMax && logit <= kFiniteMax)) return logit;  // stays, to be found
    float changed =
        logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (edit.in_output > 0) {
      changed -=
          params.frequency_penalty * static_cast<float>(edit.in_output) + params.presence_penalty;
    }
    return minimum(maximum(changed, -kFiniteMax), kFiniteMax);
  });
  for_each(params.biases, params.bias_count,
           [](float logit, const LogitEdit& edit) { return logit + edit.bias; });
  // A NaN stays, to be found.
  for_each(params.banned, params.banned_count, [](float logit, const LogitEdit&) {
    return logit <= kFiniteMax ? minus_infinity() : logit;
  });
}

}  // namespace pelton::cuda
