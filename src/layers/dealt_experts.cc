#include "layers/dealt_experts.h"

#include <algorithm>
#include <utility>

#include "kernels/weight_row.h"

namespace pelton::layers {
namespace {

// Up to so many choices of an expert take little longer than one: its weights are read.
constexpr int64_t kRun = 16;

Result<kernels::Experts> own_of(const kernels::Experts& whole, const DealtExperts& dealt,
                                const std::string& name, FloatVectors& keep) {
  if (whole.format == kernels::Format::kF8Blocks) {
    return Error{ErrorCode::kUnsupported,
                 "--enable-expert-parallel: " + name + ", which is FP8, is not dealt out",
                 "enable-expert-parallel"};
  }
  const std::vector<int>& own = dealt.own();
  const auto count = static_cast<int64_t>(own.size());
  kernels::Experts part = whole;
  part.experts = static_cast<int>(count);
  part.data = nullptr;
  part.scales = nullptr;
  kernels::ExpertMatrix* const apart = keep.add_matrices(count);
  for (int64_t i = 0; i < count; ++i) {
    const kernels::StoredMatrix matrix = expert_matrix(whole, own[static_cast<size_t>(i)]);
    apart[i] = {.data = matrix.data, .scales = matrix.scales};
  }
  part.apart = apart;
  if (whole.bias == nullptr) return part;
  float* const bias = keep.add(count * whole.rows);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t expert = own[static_cast<size_t>(i)];
    std::copy_n(whole.bias + expert * whole.rows, whole.rows, bias + i * whole.rows);
  }
  part.bias = bias;
  return part;
}

}  // namespace

DealtExperts::DealtExperts(std::vector<std::vector<int>> owners, int own_rank)
    : owners_(std::move(owners)), own_rank_(own_rank), chosen_(owners_.size()) {
  for (size_t e = 0; e < owners_.size(); ++e) {
    const bool is_own = std::ranges::count(owners_[e], own_rank) > 0;
    places_.push_back(is_own ? static_cast<int32_t>(own_.size()) : -1);
    if (is_own) own_.push_back(static_cast<int>(e));
  }
}

std::vector<int64_t> DealtExperts::chosen() const {
  std::vector<int64_t> sums;
  for (const std::atomic<int64_t>& sum : chosen_) {
    sums.push_back(sum.load(std::memory_order_relaxed));
  }
  return sums;
}

void ChoiceShare::reserve(int tokens, int experts_per_token, int experts, int ranks) {
  const size_t choices = static_cast<size_t>(tokens) * static_cast<size_t>(experts_per_token);
  ranks_of_.reserve(choices);
  places_.reserve(choices);
  experts_.reserve(static_cast<size_t>(experts));
  runs_.reserve(static_cast<size_t>(ranks));
}

void ChoiceShare::share_out(const DealtExperts& dealt, int ranks,
                            const kernels::ExpertChoice* choices, int64_t count) {
  ranks_of_.resize(static_cast<size_t>(count));
  places_.resize(static_cast<size_t>(count));
  experts_.assign(static_cast<size_t>(dealt.count()), {});
  runs_.assign(static_cast<size_t>(ranks), 0);
  for (int64_t i = 0; i < count; ++i) ++experts_[static_cast<size_t>(choices[i].expert)].choices;
  // What only one rank can do comes first.
  for (int e = 0; e < dealt.count(); ++e) {
    OfExpert& expert = experts_[static_cast<size_t>(e)];
    expert.rank = dealt.owners(e).front();
    if (dealt.owners(e).size() > 1) continue;
    runs_[static_cast<size_t>(expert.rank)] += (expert.choices + kRun - 1) / kRun;
  }
  const auto has_less = [&](int a, int b) {
    return runs_[static_cast<size_t>(a)] < runs_[static_cast<size_t>(b)];
  };
  for (int64_t i = 0; i < count; ++i) {
    const int e = choices[i].expert;
    OfExpert& expert = experts_[static_cast<size_t>(e)];
    const std::vector<int>& owners = dealt.owners(e);
    if (owners.size() > 1 && expert.seen++ % kRun == 0) {
      expert.rank = *std::ranges::min_element(owners, has_less);
      ++runs_[static_cast<size_t>(expert.rank)];
    }
    ranks_of_[static_cast<size_t>(i)] = expert.rank;
    places_[static_cast<size_t>(i)] = expert.rank == dealt.own_rank() ? dealt.place(e) : -1;
  }
  for (int e = 0; e < dealt.count(); ++e) {
    dealt.count_choices(e, experts_[static_cast<size_t>(e)].choices);
  }
}

const int32_t* ExpertRows::places(const kernels::ExpertChoice* choices, int64_t count) {
  share_.share_out(dealt_, exchange_.ranks(), choices, count);
  return share_.places();
}

void ExpertRows::gather(float* rows, int width, int64_t count) {
  exchange_.gather_rows({.data = rows, .row_bytes = width * int64_t{sizeof(float)}, .count = count},
                        [&](int64_t row) { return share_.rank_of(row); });
}

Result<kernels::ExpertWeights> own_experts(const kernels::ExpertWeights& whole,
                                           const DealtExperts& dealt, const std::string& name,
                                           FloatVectors& keep) {
  kernels::ExpertWeights weights;
  TRY_ASSIGN(weights.gate, own_of(whole.gate, dealt, name, keep));
  if (!whole.interleaved()) {
    TRY_ASSIGN(weights.up, own_of(whole.up, dealt, name, keep));
  }
  TRY_ASSIGN(weights.down, own_of(whole.down, dealt, name, keep));
  return weights;
}

}  // namespace pelton::layers
