#include "planner/footprint_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/terminal_text.h"
#include "cli/human_size.h"
#include "tensor/kv_block.h"

namespace pelton::planner {
namespace {

constexpr int kBarWidth = 32;

std::string human(int64_t bytes) {
  return cli::format_bytes(static_cast<double>(bytes));
}

class FootprintTable {
 public:
  explicit FootprintTable(int64_t memory_bytes) : memory_bytes_(memory_bytes) {}

  // A part of the machine's memory, with a bar of its share.
  void part(const std::string& name, int64_t bytes) {
    const double share =
        memory_bytes_ > 0 ? static_cast<double>(bytes) / static_cast<double>(memory_bytes_) : 0.0;
    const int full =
        std::clamp(static_cast<int>(share * kBarWidth + 0.5), bytes > 0 ? 1 : 0, kBarWidth);
    text_ += fmt::format("{:<20}{:>11}  {}{} {:>3.0f} %\n", name, human(bytes),
                         std::string(static_cast<size_t>(full), '#'),
                         std::string(static_cast<size_t>(kBarWidth - full), '.'), share * 100);
  }
  void detail(const std::string& name, int64_t bytes) {
    if (bytes > 0) text_ += fmt::format("  {:<18}{:>11}\n", name, human(bytes));
  }
  void line(const std::string& text) { text_ += text + "\n"; }
  const std::string& text() const { return text_; }

 private:
  const int64_t memory_bytes_;
  std::string text_;
};

std::string layers_of(const cost_model::KvAllocated::Group& group) {
  return group.spec.name + " layers";
}

std::string blocks_line(const cost_model::KvAllocated::Group& group, int block_tokens) {
  return fmt::format("  {:<14}{:>9} blocks of {} tokens, {} each", layers_of(group),
                     cli::format_count(group.block_count), block_tokens,
                     human(group.spec.block_bytes));
}

}  // namespace

// Of an encoder, in place of what is said of keys and values.
std::string whole_texts_line(const cost_model::Footprint& footprint) {
  return fmt::format(
      "\nNo KV cache: texts of up to {} tokens, each computed whole; a step of up to {} tokens "
      "(max_num_batched_tokens) takes the working memory",
      cli::format_count(footprint.context_tokens_max),
      cli::format_count(footprint.batch_tokens_max));
}

std::string footprint_text(const std::string& model, const cost_model::Footprint& footprint) {
  const cost_model::Weights& weights = footprint.weights;
  const cost_model::KvAllocated& kv = footprint.kv;
  const cost_model::KvFormula& formula = footprint.kv_formula;
  FootprintTable table(footprint.memory_bytes);
  table.line(fmt::format("{} in {} of memory\n", base::without_controls(model),
                         human(footprint.memory_bytes)));
  table.part("weights", weights.bytes());
  table.detail("experts", weights.experts);
  table.detail("MLP", weights.mlp);
  table.detail("attention", weights.attention);
  table.detail("embedding", weights.embedding);
  table.detail("head", weights.head);
  table.detail("norms and routers", weights.other);
  table.detail("of it in 12 bits", weights.compact);
  table.part("working memory", footprint.workspace.bytes());
  table.detail("speculation", footprint.workspace.drafting);
  table.detail("adapters' products", footprint.workspace.adapters);
  if (footprint.keeps_kv()) table.part("KV cache", kv.bytes());
  for (const auto& group : kv.groups) table.detail(layers_of(group), group.bytes());
  if (footprint.swap.bytes() > 0) table.part("swap space", footprint.swap.bytes());
  if (footprint.adapter_bytes > 0) table.part("adapters", footprint.adapter_bytes);
  table.part("left", std::max<int64_t>(footprint.memory_bytes - footprint.bytes(), 0));
  if (footprint.bytes() > footprint.memory_bytes) {
    table.line(
        fmt::format("\nThat is {} more than there is: weights would be read from the disk "
                    "again and again.",
                    human(footprint.bytes() - footprint.memory_bytes)));
  }
  if (!footprint.keeps_kv()) {
    table.line(whole_texts_line(footprint));
    return table.text();
  }
  table.line(fmt::format("\nKV cache in {}: {} a token and {} a sequence by the architecture",
                         tensor::kv_type_name(kv.dtype), human(formula.per_token),
                         human(formula.per_sequence)));
  for (const auto& group : kv.groups) table.line(blocks_line(group, kv.block_tokens));
  table.line(
      fmt::format("\nKV cache capacity: {} tokens; {} sequence{} of {} tokens (max_num_seqs {})",
                  cli::format_count(kv.token_count()), footprint.max_sequences(),
                  footprint.max_sequences() == 1 ? "" : "s",
                  cli::format_count(footprint.context_tokens_max), footprint.sequences_max));
  return table.text();
}

}  // namespace pelton::planner
