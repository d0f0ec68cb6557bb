// pelton logits: the exact logits of a sequence, as a .npy file, to compare with other programs.
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "apps/draft_logits.h"
#include "apps/input.h"
#include "apps/loading.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "cli/human_size.h"
#include "cli/progress.h"
#include "kernels/kernels.h"
#include "lora/adapter.h"
#include "models/model.h"
#include "models/sequence_runner.h"
#include "request/adapter.h"
#include "tensor/kv_block.h"
#include "tensor/npy.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr int kChunkDefault = 256;  // a few hundred rows amortise a pass over the weights
constexpr int kLogitRowsMax = 32;   // of 201,088 floats each: 25 MiB

struct Span {
  int begin = 0;
  int end = 0;
};

// "A:B", either may be left out.
Result<Span> parse_positions(const std::string& text, int count) {
  Span span{.begin = 0, .end = count};
  if (text.empty()) return span;
  const size_t colon = text.find(':');
  const auto number = [](std::string_view part, int& to) {
    if (part.empty()) return true;
    const auto [end, failure] = std::from_chars(part.data(), part.data() + part.size(), to);
    return failure == std::errc{} && end == part.data() + part.size();
  };
  const std::string_view all = text;
  if (colon == std::string::npos || !number(all.substr(0, colon), span.begin) ||
      !number(all.substr(colon + 1), span.end) || span.begin < 0 || span.begin >= span.end ||
      span.end > count) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--positions wants A:B with 0 <= A < B <= {}, not '{}'", count, text)};
  }
  return span;
}

Result<void> check_ids(const std::vector<TokenId>& ids, const families::ModelConfig& config) {
  if (static_cast<int64_t>(ids.size()) > config.context_max) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{} tokens, but the model's context is {}", ids.size(), config.context_max)};
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= config.vocab_size) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("token {} is {}, but the vocabulary has {}", i, ids[i], config.vocab_size)};
    }
  }
  return {};
}

// Collects the residual stream: written once the last chunk is through, as its order in the file
// (layer first) is not the order of computing (chunk first).
class HiddenRecorder {
 public:
  HiddenRecorder(Span span, const families::ModelConfig& config)
      : span_(span), hidden_(config.hidden_size) {
    array_.shape = {1 + 2 * int64_t{config.layer_count()}, span.end - span.begin, hidden_};
    array_.bytes.resize(static_cast<size_t>(bytes(span, config)));
  }

  // What it will hold in memory.
  static int64_t bytes(Span span, const families::ModelConfig& config) {
    return (1 + 2 * int64_t{config.layer_count()}) * (span.end - span.begin) * config.hidden_size *
           static_cast<int64_t>(sizeof(float));
  }

  void record(int index, const float* x, int start, int tokens) {
    const int64_t rows = span_.end - span_.begin;
    auto* out = reinterpret_cast<float*>(array_.bytes.data());
    for (int t = 0; t < tokens; ++t) {
      const int position = start + t;
      if (position < span_.begin || position >= span_.end) continue;
      const float* from = x + int64_t{t} * hidden_;
      std::copy(from, from + hidden_, out + (index * rows + position - span_.begin) * hidden_);
    }
  }

  Result<void> write(const std::string& file) const { return tensor::write_npy(file, array_); }

 private:
  const Span span_;
  const int64_t hidden_;
  tensor::NpyArray array_;
};

struct Job {
  std::vector<TokenId> ids;
  Span span;
  int chunk = 0;
  std::string out;
  std::string hidden;
  const lora::Adapter* adapter = nullptr;
  int adapter_from = 0;  // it acts from this position on
};

// --draft: the draft tokens of a drafter behind every token.
Result<void> write_drafts(const cli::Arguments& arguments, const Job& job, models::Model& model,
                          kernels::Kernels& kernels, base::ThreadPool& pool,
                          const checkpoint::Checkpoint& checkpoint) {
  TRY_ASSIGN(const kernels::KernelChoice choice,
             kernels::parse_kernel_choice(arguments.text("--kernels")));
  TRY_ASSIGN(const std::optional<tensor::DType> kv,
             tensor::parse_kv_type(arguments.text("--kv-cache-dtype")));
  return write_draft_logits({.ids = job.ids,
                             .folder = arguments.text("--draft"),
                             .chain = static_cast<int>(arguments.integer("--draft-chain")),
                             .chunk = job.chunk,
                             .kernels = choice,
                             .kv_dtype = kv.value_or(kernels.kv_dtype()),
                             .out = job.out},
                            checkpoint, model, pool);
}

Result<void> compute(const Job& job, models::Model& model, tensor::DType kv_dtype) {
  const int vocab = model.config().vocab_size;
  const int64_t hidden_bytes = HiddenRecorder::bytes(job.span, model.config());
  if (!job.hidden.empty() && hidden_bytes > base::memory_limit_bytes() / 2) {
    return Error{ErrorCode::kDoesNotFit,
                 fmt::format("--hidden would need {} of memory; ask for fewer --positions",
                             cli::format_bytes(static_cast<double>(hidden_bytes)))};
  }
  TRY_ASSIGN(models::SequenceRunner runner,
             models::SequenceRunner::make(model, kv_dtype, static_cast<int>(job.ids.size())));
  runner.use_adapter(job.adapter, job.adapter_from);
  TRY_ASSIGN(tensor::NpyWriter writer,
             tensor::NpyWriter::create(job.out, {job.span.end - job.span.begin, vocab}));
  std::optional<HiddenRecorder> recorder;
  if (!job.hidden.empty()) recorder.emplace(job.span, model.config());

  const base::SystemClock clock;
  cli::Progress progress("computing", cli::Progress::Unit::kCount, clock);
  for (int start = 0; start < job.span.end;) {
    // Rows whose logits are wanted come at most kLogitRowsMax at a time.
    int end = std::min(start + job.chunk, job.span.end);
    if (end > job.span.begin) end = std::min(end, std::max(start, job.span.begin) + kLogitRowsMax);
    std::vector<int> rows;
    for (int p = std::max(start, job.span.begin); p < end; ++p) rows.push_back(p - start);

    auto record = [&](int index, const float* x, int tokens) {
      recorder->record(index, x, start, tokens);
    };
    models::HiddenTap tap(record);
    const std::span<const TokenId> tokens(job.ids.data() + start, static_cast<size_t>(end - start));
    const float* logits = runner.step(tokens, rows, recorder ? &tap : nullptr);
    TRY(writer.append({logits, rows.size() * static_cast<size_t>(vocab)}));
    start = end;
    progress.update(start, job.span.end);
  }
  TRY(writer.finish());
  if (recorder) TRY(recorder->write(job.hidden));
  return {};
}

Result<lora::Adapter> load_adapter(const std::string& folder, const families::ModelConfig& config) {
  Result<lora::Adapter> adapter = lora::Adapter::load(folder, config, {});
  if (adapter.ok()) return adapter;
  Error error = std::move(adapter).error();
  return Error{error.code, "--lora: " + error.message, "lora"};
}

Result<void> run_logits(const cli::Arguments& arguments) {
  TRY_ASSIGN(const kernels::KernelChoice choice,
             kernels::parse_kernel_choice(arguments.text("--kernels")));
  TRY_ASSIGN(const std::optional<tensor::DType> kv,
             tensor::parse_kv_type(arguments.text("--kv-cache-dtype")));
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(arguments.text("MODEL")));
  TRY_ASSIGN(const IdsFile file, read_ids_file(arguments.text("--tokens")));
  TRY_ASSIGN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::open(folder));

  if (checkpoint.config().is_encoder()) {
    return Error{ErrorCode::kUnsupported,
                 "an encoder has no logits of tokens: pelton embed gives its vectors and labels"};
  }

  Job job{.ids = file.all(),
          .chunk = static_cast<int>(arguments.integer("--chunk")),
          .out = arguments.text("--out"),
          .hidden = arguments.text("--hidden")};
  TRY(check_ids(job.ids, checkpoint.config()));
  TRY_ASSIGN(job.span,
             parse_positions(arguments.text("--positions"), static_cast<int>(job.ids.size())));

  base::ThreadPool pool({.threads = static_cast<int>(arguments.integer("--threads"))});
  const base::ThreadPool::PinnedCaller pinned = pool.adopt_caller();
  TRY_ASSIGN(const std::unique_ptr<kernels::Kernels> kernels, kernels::make_kernels(choice, pool));
  std::optional<lora::Adapter> adapter;
  if (arguments.has("--lora")) {
    TRY_ASSIGN(adapter, load_adapter(arguments.text("--lora"), checkpoint.config()));
    const std::optional<int32_t> from = request::acts_from(adapter->invocation(), job.ids);
    job.adapter = from ? &*adapter : nullptr;
    job.adapter_from = from.value_or(0);
  }
  TRY_ASSIGN(const std::unique_ptr<models::Model> model,
             models::load_model(checkpoint, *kernels,
                                {.batch_tokens_max = job.chunk,
                                 .logit_rows_max = kLogitRowsMax,
                                 .adapter_rank_max = adapter ? adapter->rank_max() : 0,
                                 .expert_adapters = adapter && adapter->adds_to_experts()}));
  if (arguments.has("--draft")) {
    return write_drafts(arguments, job, *model, *kernels, pool, checkpoint);
  }
  return compute(job, *model, kv.value_or(kernels->kv_dtype()));
}

}  // namespace

cli::Verb logits_verb() {
  return {
      .name = "logits",
      .summary = "Writes a sequence's logits to a .npy file.",
      .about =
          "Float32 [positions, vocab]. --hidden adds the residual stream after the embedding and\n"
          "after each attention and each expert block: float32 [1 + 2*layers, positions, hidden].\n"
          "--draft writes instead what a drafter says behind every token: the logits of\n"
          "--draft-chain draft tokens, each the greedy one behind the one before, float32\n"
          "[tokens, draft tokens, draft vocabulary]. An EAGLE-3 head has none behind the first "
          "token;\n"
          "of Medusa heads, row p's are those for the tokens p + 2, p + 3, ...",
      .positionals = {{"MODEL", "a model folder, a .gguf file or a hub id"}},
      .flags =
          {
              {.name = "--tokens",
               .value = "IDS.json",
               .help = "a JSON array of ids, or {\"prompt\": [...], \"continuation\": [...]}",
               .required = true},
              {.name = "--out", .value = "FILE.npy", .help = "where to", .required = true},
              {.name = "--hidden", .value = "FILE.npy", .help = "also the residual stream"},
              {.name = "--positions",
               .value = "A:B",
               .help = "only these positions, B not included; default all"},
              {.name = "--draft",
               .value = "DIR",
               .help = "the folder of an EAGLE-3 head or of Medusa heads of this model, or of a "
                       "draft model",
               .not_with = {{"--hidden"}, {"--positions"}}},
              {.name = "--lora",
               .value = "DIR",
               .help = "under a LoRA adapter of this model: the folder of its adapter_config.json",
               .not_with = {{"--draft"}}},
              {.name = "--draft-chain",
               .value = "K",
               .help = "draft tokens behind every token",
               .kind = Flag::Kind::kInteger,
               .default_text = "4",
               .least = 1,
               .most = 64,
               .only_with = {{"--draft"}}},
              {.name = "--chunk",
               .value = "N",
               .help = "tokens computed at a time; the result does not depend on it",
               .kind = Flag::Kind::kInteger,
               .default_text = std::to_string(kChunkDefault),
               .least = 1,
               .most = 8192},
              kernels_flag(),
              threads_flag(),
              kv_type_flag(),
          },
      .examples =
          {"pelton logits ./model --tokens ids.json --out logits.npy",
           "pelton logits ./model --tokens ids.json --out l.npy --kernels reference --chunk 7",
           "pelton logits ./model --tokens ids.json --lora ./adapter --out l.npy",
           "pelton logits ./model --tokens ids.json --draft ./head --draft-chain 3 --out d.npy"},
      .run = run_logits,
  };
}

}  // namespace pelton::apps
