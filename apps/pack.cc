// pelton pack: a model's weights in the order in which the fast kernels read them.
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/loading.h"
#include "apps/sample_text.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf_names.h"
#include "cli/human_size.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "kernels/kernels.h"
#include "layers/pack_weights.h"
#include "models/weight_gate.h"
#include "tokenizer/ggml_vocabulary.h"

namespace pelton::apps {
namespace {

using checkpoint::Checkpoint;
using cli::Flag;

constexpr size_t kGateTokens = 128;

std::string_view name_of(layers::MatrixWeights weights) {
  return weights == layers::MatrixWeights::kInt8 ? "int8" : "as shipped";
}

Error cannot(const std::string& path, const char* what, const std::error_code& why) {
  return Error{ErrorCode::kIo, fmt::format("{}: cannot {}: {}", path, what, why.message())};
}

// What stands beside the weights: configuration and tokenizer.
Result<void> write_texts(const Checkpoint& source, const std::string& folder) {
  Json config;
  if (source.gguf() != nullptr) {
    TRY_ASSIGN(config, checkpoint::config_from_gguf(*source.gguf(), source.config().vocab_size));
  } else {
    TRY_ASSIGN(config, checkpoint::read_config_json(source.folder()));
  }
  TRY(base::write_file(folder + "/config.json", config.dump() + "\n"));
  TRY_ASSIGN(const auto stored, source.vocabulary());
  if (stored) {
    const tokenizer::GgmlVocabulary vocabulary{stored->model, stored->split, stored->tokens,
                                               stored->merges, stored->types};
    TRY_ASSIGN(const std::string json,
               tokenizer::tokenizer_json_of(vocabulary, source.gguf()->path()));
    TRY(base::write_file(folder + "/tokenizer.json", json));
  }
  for (const char* name : {"tokenizer.json", "o200k_base.tiktoken", "generation_config.json"}) {
    for (const std::string& from : source.text_folders()) {
      const std::string to = folder + "/" + name;
      std::error_code failed;
      if (std::filesystem::exists(to, failed) ||
          !std::filesystem::exists(from + "/" + name, failed)) {
        continue;
      }
      if (!std::filesystem::copy_file(from + "/" + name, to, failed)) {
        return cannot(to, "copy", failed);
      }
    }
  }
  return {};
}

// A folder of our own that takes its name when it is complete.
class NewFolder {
 public:
  static Result<NewFolder> make(std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    std::error_code failed;
    if (std::filesystem::exists(path, failed)) return is_there(path);
    const std::filesystem::path parent = std::filesystem::path(path).parent_path();
    if (!parent.empty()) std::filesystem::create_directories(parent, failed);
    if (failed) return cannot(parent.string(), "make", failed);
    std::string work = path + ".partial.XXXXXX";
    if (::mkdtemp(work.data()) == nullptr) return cannot(work, "make", last_error());
    ::chmod(work.c_str(), 0755);  // as any new folder
    return NewFolder(std::move(path), std::move(work));
  }
  NewFolder(NewFolder&& other) noexcept
      : path_(std::move(other.path_)), work_(std::exchange(other.work_, {})) {}
  NewFolder& operator=(NewFolder&&) = delete;
  ~NewFolder() {
    std::error_code ignored;
    if (!work_.empty()) std::filesystem::remove_all(work_, ignored);
  }

  const std::string& work() const { return work_; }

  // What took so long to make survives a power cut once it has its name.
  Result<void> finish() {
    for (const auto& entry : std::filesystem::directory_iterator(work_)) {
      TRY(sync(entry.path().string()));
    }
    TRY(sync(work_));
    if (::renameat2(AT_FDCWD, work_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) {
      if (errno == EEXIST) return is_there(path_);
      return cannot(path_, "rename to", last_error());
    }
    work_.clear();
    return {};
  }

 private:
  NewFolder(std::string path, std::string work) : path_(std::move(path)), work_(std::move(work)) {}

  static std::error_code last_error() { return {errno, std::generic_category()}; }
  static Error is_there(const std::string& path) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is there already; name a new folder, or remove it", path)};
  }
  static Result<void> sync(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const bool done = fd >= 0 && ::fsync(fd) == 0;
    const std::error_code failed = last_error();
    if (fd >= 0) ::close(fd);
    if (!done) return cannot(path, "write out", failed);
    return {};
  }

  std::string path_;
  std::string work_;
};

struct Made {
  layers::MatrixWeights weights = layers::MatrixWeights::kInt8;
  std::optional<models::WeightLoss> loss;
  std::string excess;  // over the limits; empty if there is none
};

class Packing {
 public:
  Packing(const Checkpoint& source, const cli::Arguments& arguments, const std::string& folder,
          base::ThreadPool& pool, const base::Clock& clock, const cli::Interrupt& interrupt)
      : source_(source),
        arguments_(arguments),
        folder_(folder),
        pool_(pool),
        clock_(clock),
        interrupt_(interrupt) {}

  // By flag, or what loses little enough.
  Result<Made> run() {
    TRY(write_texts(source_, folder_));
    const std::string& asked = arguments_.text("--weights");
    if (asked != "shipped") {
      TRY_ASSIGN(Made made, make(layers::MatrixWeights::kInt8));
      if (asked == "int8" || made.excess.empty()) return made;
      fmt::print(stderr, "weights int8 lose too much of this model ({}): kept as shipped\n",
                 made.excess);
    }
    return make(layers::MatrixWeights::kAsShipped);
  }

 private:
  Result<Made> make(layers::MatrixWeights weights) {
    const bool int8 = arguments_.text("--activations") == "int8";
    {
      cli::Progress progress(fmt::format("packing, weights {}", name_of(weights)),
                             cli::Progress::Unit::kBytes, clock_);
      TRY(layers::pack_weights(
          source_,
          {.matrices = weights,
           .activations = int8 ? kernels::Activations::kInt8 : kernels::Activations::kInt16,
           .source = source_.folder()},
          folder_ + "/model.safetensors", pool_, [&](int64_t done, int64_t total) {
            progress.update(done, total);
            return !interrupt_.pending();
          }));
    }
    Made made{.weights = weights};
    TRY_ASSIGN(const Checkpoint packed, Checkpoint::open(folder_));
    TRY_ASSIGN(const SampleTokens sample, sample_tokens(source_, kGateTokens));
    if (sample.tokens.size() < 2) return made;
    TRY_ASSIGN(const auto kernels, kernels::make_kernels(kernels::KernelChoice::kAuto, pool_));
    cli::Progress progress("comparing", cli::Progress::Unit::kCount, clock_);
    progress.update(0, 1);
    TRY_ASSIGN(made.loss, models::measure_loss(source_, packed, *kernels, sample.tokens));
    progress.update(1, 1);
    if (interrupt_.pending()) return Error{ErrorCode::kCancelled, "interrupted"};
    made.excess = models::excess(*made.loss, {});
    if (!std::isfinite(made.loss->error_mean)) {
      return Error{
          ErrorCode::kBadCheckpoint,
          fmt::format("{}: computes NaN or infinity; pelton verify tells where", source_.folder())};
    }
    return made;
  }

  const Checkpoint& source_;
  const cli::Arguments& arguments_;
  const std::string& folder_;
  base::ThreadPool& pool_;
  const base::Clock& clock_;
  const cli::Interrupt& interrupt_;
};

void report(const std::string& out, const Made& made, const std::string& activations,
            int64_t bytes) {
  fmt::print(stderr, "{}: {}; experts as shipped, attention and head {}, activations {}\n", out,
             cli::format_bytes(static_cast<double>(bytes)), name_of(made.weights), activations);
  if (!made.loss) return;
  const models::WeightLoss& loss = *made.loss;
  fmt::print(stderr,
             "against the weights as shipped: relative error {:.1e} (worst {:.1e}), divergence "
             "{:.1e} nats, the same best token at {:.1f} % of positions\n",
             loss.error_mean, loss.error_max, loss.divergence, 100 * loss.agreement);
  if (!made.excess.empty()) fmt::print(stderr, "warning: {}\n", made.excess);
}

Result<void> run(const cli::Arguments& arguments) {
  TRY_ASSIGN(const std::string model, checkpoint::resolve_model(arguments.text("MODEL")));
  TRY_ASSIGN(const Checkpoint source, Checkpoint::open(model));
  if (source.weight_layout() == checkpoint::WeightLayout::kTiled) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is packed already", model)};
  }
  const std::string& out = arguments.text("OUT");
  const base::SystemClock clock;
  base::ThreadPool pool({.threads = static_cast<int>(arguments.integer("--threads"))});
  pool.adopt_caller();
  const cli::Interrupt interrupt;
  TRY_ASSIGN(NewFolder folder, NewFolder::make(out));
  TRY_ASSIGN(const Made made,
             Packing(source, arguments, folder.work(), pool, clock, interrupt).run());
  TRY_ASSIGN(const Checkpoint packed, Checkpoint::open(folder.work()));
  report(out, made, arguments.text("--activations"), packed.weight_bytes());
  return folder.finish();
}

}  // namespace

cli::Verb pack_verb() {
  return {
      .name = "pack",
      .summary = "Writes a model's weights in the order in which the fast kernels read them.",
      .about =
          "A folder that every other verb takes as its MODEL: it computes faster than the "
          "original\n"
          "and loads with no work. Experts stay MXFP4 to the bit. Attention and head become 8-bit\n"
          "integers if the model bears it: the same text is computed with both, and --weights "
          "auto\n"
          "keeps them as shipped where that changes too much.",
      .positionals = {{"MODEL", "a model folder, a .gguf file or a hub id"},
                      {"OUT", "the folder to make"}},
      .flags = {{.name = "--weights",
                 .value = "W",
                 .help = "attention and head: 8-bit integers, as shipped, or what loses little",
                 .default_text = "auto",
                 .choices = {"auto", "int8", "shipped"}},
                {.name = "--activations",
                 .value = "A",
                 .help = "what tiles are multiplied with; int8 is faster in prefill and coarser",
                 .default_text = "int16",
                 .choices = {"int16", "int8"}},
                threads_flag()},
      .examples = {"pelton pack openai/gpt-oss-20b ./gpt-oss-20b-packed",
                   "pelton serve ./gpt-oss-20b-packed",
                   "pelton pack ./model.gguf ./packed --weights shipped"},
      .run = run,
  };
}

}  // namespace pelton::apps
