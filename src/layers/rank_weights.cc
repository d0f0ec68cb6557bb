#include "layers/rank_weights.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "base/check.h"
#include "families/expected_tensors.h"
#include "kernels/tiles.h"

namespace pelton::layers {
namespace {

using checkpoint::WeightRanges;
using tensor::TensorView;

Result<void> check_config(const families::ModelConfig& config, bool are_experts_cut) {
  if (config.is_encoder()) return cannot_be_shared_out("an encoder");
  if (config.is_latent()) return cannot_be_shared_out("latent attention");
  if (config.post_norms) return cannot_be_shared_out("a layer with norms behind its blocks");
  if (config.quantization != families::WeightQuantization::kNone) {
    return cannot_be_shared_out(
        "a model whose files are FP8 or GPTQ's, AWQ's or compressed-tensors' integers");
  }
  if (config.shared_expert_count > 0) return cannot_be_shared_out("a model with shared experts");
  if (config.head_size % kernels::kTileRows != 0) {
    return cannot_be_shared_out(fmt::format("heads of {}", config.head_size));
  }
  const auto whole_blocks = [](int size) { return size % kRankBlock == 0; };
  if (are_experts_cut && !whole_blocks(config.expert_intermediate_size)) {
    return cannot_be_shared_out(fmt::format("experts of {}", config.expert_intermediate_size));
  }
  if (config.intermediate_size > 0 && !whole_blocks(config.widest_mlp())) {
    return cannot_be_shared_out(fmt::format("MLPs of {}", config.widest_mlp()));
  }
  return {};
}

struct Run {  // rows
  int64_t first;
  int64_t count;
};
using Runs = std::vector<Run>;
struct Stack {  // matrices of one tensor, one behind the other
  int64_t matrices;
  int64_t rows;  // of each
};

// What one rank has of each tensor, by its name (families/expected_tensors.h).
class RankCut {
 public:
  RankCut(const checkpoint::Checkpoint& checkpoint, const RankShares& shares,
          const ExpertTable& experts, int rank)
      : config_(checkpoint.config()),
        are_columns_(checkpoint.weight_layout() == families::WeightLayout::kBf16Experts),
        has_coarse_head_(checkpoint.has(families::kCoarseHead)),
        shares_(shares),
        experts_(experts),
        rank_(rank) {}

  void add(std::string_view name, const TensorView& view, WeightRanges& ranges) const {
    constexpr std::string_view kLayer = "model.layers.";
    constexpr std::string_view kExperts = "mlp.experts.";
    std::optional<Runs> runs;  // none: it is whole
    Stack stack{.matrices = 1, .rows = view.shape[0]};
    if (name == "lm_head.weight" || name == families::kCoarseHead) {
      runs = head_rows(name);
    } else if (view.shape.size() > 1 && !name.ends_with("bias") && name.starts_with(kLayer)) {
      int layer = 0;
      std::string_view rest = without_number(name.substr(kLayer.size()), layer);
      if (!rest.starts_with(kExperts)) {
        runs = rows_of_layer(rest);
      } else {
        rest.remove_prefix(kExperts.size());
        runs = experts_.empty() ? rows_of_experts(rest) : own_experts(rest, layer);
        const bool is_stack = experts_.empty() && view.shape.size() > 2;
        if (is_stack) stack = {.matrices = view.shape[0], .rows = view.shape[1]};
      }
    }
    if (!runs) return ranges.push_back({name, 0, view.bytes});
    add_runs(name, view, stack, *runs, ranges);
  }

 private:
  static Run run_of(const parallel::Share& share, int rank, int rows_each) {
    return {int64_t{share.begin(rank)} * rows_each, int64_t{share.count(rank)} * rows_each};
  }
  Run inner(const parallel::Share& blocks) const { return run_of(blocks, rank_, kRankBlock); }
  Run hidden() const { return run_of(shares_.hidden, rank_, 1); }

  // "12.rest": "rest".
  static std::string_view without_number(std::string_view text, int& number) {
    const char* const end = text.data() + text.size();
    const char* const at = std::from_chars(text.data(), end, number).ptr;
    return at == text.data() || at == end ? text : text.substr(at + 1 - text.data());
  }

  std::optional<Runs> head_rows(std::string_view name) const {
    if (rank_ == 0) return std::nullopt;
    if (has_coarse_head_ && name != families::kCoarseHead) return Runs{};
    return Runs{run_of(shares_.vocab, rank_, 1)};
  }

  std::optional<Runs> rows_of_layer(std::string_view name) const {
    const int group = config_.head_count / config_.kv_head_count;
    const Run q = run_of(shares_.kv_heads, rank_, group * config_.head_size);
    const Run kv = run_of(shares_.kv_heads, rank_, config_.head_size);
    const int64_t keys = config_.q_size();
    const int64_t values = keys + config_.kv_size();
    if (name == "self_attn.q_proj.weight") return Runs{q};
    if (name == "self_attn.k_proj.weight" || name == "self_attn.v_proj.weight") return Runs{kv};
    if (name == "self_attn.qkv_proj.weight") {
      return Runs{q, {keys + kv.first, kv.count}, {values + kv.first, kv.count}};
    }
    if (name == "self_attn.o_proj.weight" || name == "mlp.down_proj.weight") return Runs{hidden()};
    if (name == "mlp.gate_proj.weight" || name == "mlp.up_proj.weight") {
      return Runs{inner(shares_.mlp_blocks)};
    }
    return std::nullopt;
  }

  // Cut: of each matrix. name: "down.weight", "7.up_proj.weight".
  std::optional<Runs> rows_of_experts(std::string_view name) const {
    if (are_columns_) return std::nullopt;  // no rank computes with these
    int expert = 0;
    const std::string_view matrix = without_number(name, expert);
    const Run rows = inner(shares_.expert_blocks);
    if (matrix.starts_with("down")) return Runs{hidden()};
    if (!matrix.starts_with("gate_up")) return Runs{rows};  // gate, or up
    const bool gate_is_first = matrix == "gate_up_proj" || matrix == "gate_up_exps";
    if (!gate_is_first) return Runs{{2 * rows.first, 2 * rows.count}};
    return Runs{rows, {config_.expert_intermediate_size + rows.first, rows.count}};
  }

  // Dealt out: of all matrices those of its experts, each as one row.
  std::optional<Runs> own_experts(std::string_view name, int layer) const {
    const auto& owners = experts_[static_cast<size_t>(layer)];
    const auto is_own = [&](int expert) {
      return std::ranges::count(owners[static_cast<size_t>(expert)], rank_) > 0;
    };
    int expert = 0;
    if (without_number(name, expert).size() != name.size()) {  // it has a tensor of its own
      return is_own(expert) ? std::nullopt : std::optional(Runs());
    }
    Runs runs;
    for (int e = 0; e < static_cast<int>(owners.size()); ++e) {
      if (is_own(e)) runs.push_back({e, 1});
    }
    return runs;
  }

  // Of each matrix of the tensor.
  static void add_runs(std::string_view name, const TensorView& view, const Stack& stack,
                       const Runs& runs, WeightRanges& ranges) {
    const int64_t bytes = std::ssize(view.bytes) / stack.matrices;
    const auto bytes_of = [&](int64_t rows) {
      CHECK(bytes * rows % stack.rows == 0, name);
      return bytes * rows / stack.rows;
    };
    for (int64_t matrix = 0; matrix < stack.matrices; ++matrix) {
      for (const Run& run : runs) {
        if (run.count == 0) continue;
        const int64_t at = matrix * bytes + bytes_of(run.first);
        const int64_t count = bytes_of(run.count);
        ranges.push_back(
            {name, at, view.bytes.subspan(static_cast<size_t>(at), static_cast<size_t>(count))});
      }
    }
  }

  const families::ModelConfig& config_;
  const bool are_columns_;
  const bool has_coarse_head_;
  const RankShares& shares_;
  const ExpertTable& experts_;
  const int rank_;
};

}  // namespace

Error cannot_be_shared_out(const std::string& what) {
  return Error{ErrorCode::kUnsupported,
               fmt::format("--tensor-parallel-size: {} cannot be shared out among ranks", what),
               "tensor-parallel-size"};
}

Result<RankShares> RankShares::make(const families::ModelConfig& config,
                                    const std::vector<int>& weights, const ExpertTable& experts) {
  using parallel::Share;
  TRY(check_config(config, config.has_experts() && experts.empty()));
  if (!experts.empty()) TRY(check_experts(experts, config, static_cast<int>(weights.size())));
  return RankShares{
      .kv_heads = Share::make(config.kv_head_count, 1, weights),
      .hidden = Share::make(config.hidden_size, kernels::kTileRows, weights),
      .vocab = Share::make(config.vocab_size, kernels::kTileRows, weights),
      .expert_blocks = Share::make(config.expert_intermediate_size / kRankBlock, 1, weights),
      .mlp_blocks = Share::make(config.widest_mlp() / kRankBlock, 1, weights)};
}

Result<WeightRanges> rank_weights(const checkpoint::Checkpoint& checkpoint, int rank,
                                  const std::vector<int>& weights, const ExpertTable& experts) {
  TRY_ASSIGN(const RankShares shares, RankShares::make(checkpoint.config(), weights, experts));
  const RankCut cut(checkpoint, shares, experts, rank);
  WeightRanges ranges;
  for (const auto& [name, view] : checkpoint.tensors()) cut.add(name, view, ranges);
  return ranges;
}

}  // namespace pelton::layers
