#include "node/packed_folder.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/sync_path.h"
#include "checkpoint/config_file.h"
#include "checkpoint/gguf_names.h"
#include "node/model_template.h"
#include "node/sample_text.h"
#include "tokenizer/ggml_vocabulary.h"

namespace pelton::node {
namespace {

using checkpoint::Checkpoint;

constexpr size_t kSampleTokens = 128;

Error cannot(const std::string& path, const char* what, const std::error_code& why) {
  return Error{ErrorCode::kIo, fmt::format("{}: cannot {}: {}", path, what, why.message())};
}

// A GGUF file's chat template, as folders have it.
Result<void> write_template(const Checkpoint& source, const std::string& folder) {
  if (source.gguf() == nullptr) return {};
  TRY_ASSIGN(const auto found, read_model_template(source, ""));
  if (!found) return {};
  Json tokens;
  tokens.set("bos_token", found->bos_token).set("eos_token", found->eos_token);
  TRY(base::write_file(folder + "/tokenizer_config.json", tokens.dump() + "\n"));
  return base::write_file(folder + "/chat_template.jinja", found->text);
}

// What stands beside the weights: configuration, tokenizer, chat template.
Result<void> write_texts(const Checkpoint& source, const std::string& folder) {
  Json config;
  if (source.gguf() != nullptr) {
    TRY_ASSIGN(config, checkpoint::config_from_gguf(*source.config().family, *source.gguf(),
                                                    {.vocab_size = source.config().vocab_size,
                                                     .has_head = !source.config().tied_head}));
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
  for (const char* name :
       {"tokenizer.json", "o200k_base.tiktoken", "generation_config.json", "tokenizer_config.json",
        "chat_template.jinja", "README.md", "LICENSE"}) {
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
  return write_template(source, folder);
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
    std::string work = fmt::format("{}{}XXXXXX", path, kPartialFolder);
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
      TRY(base::sync_path(entry.path().string()));
    }
    TRY(base::sync_path(work_));
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

  std::string path_;
  std::string work_;
};

// Memory that has a path while this is there: "/proc/self/fd/7".
class MemoryFile {
 public:
  static Result<MemoryFile> make() {
    const int fd = ::memfd_create("pelton-packed", MFD_CLOEXEC);
    if (fd >= 0) return MemoryFile(fd);
    return cannot("packed weights", "make memory for", {errno, std::generic_category()});
  }
  MemoryFile(MemoryFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  MemoryFile& operator=(MemoryFile&&) = delete;
  ~MemoryFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  std::string path() const { return fmt::format("/proc/self/fd/{}", fd_); }

 private:
  explicit MemoryFile(int fd) : fd_(fd) {}

  int fd_;
};

}  // namespace

// A packed model is a folder: for a moment there is one, of links and small files, whose weights
// lie in memory. What has been mapped stays when it goes.
Result<Checkpoint> pack_into_memory(const Checkpoint& source, const PackFolderOptions& options,
                                    base::ThreadPool& pool, models::PackModelProgress progress,
                                    models::PackedModel& made) {
  std::error_code failed;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(failed);
  if (failed) return cannot("temporary folder", "find", failed);
  TRY_ASSIGN(const NewFolder folder,
             NewFolder::make(fmt::format("{}/pelton-{}", temporary.string(), ::getpid())));
  TRY(write_texts(source, folder.work()));
  TRY_ASSIGN(const MemoryFile memory, MemoryFile::make());
  std::filesystem::create_symlink(memory.path(), folder.work() + "/model.safetensors", failed);
  if (failed) return cannot(folder.work(), "link from", failed);
  TRY_ASSIGN(const SampleTokens sample, sample_tokens(source, kSampleTokens));
  TRY_ASSIGN(made, models::pack_model(source,
                                      {.weights = options.weights,
                                       .activations = options.activations,
                                       .sample = sample.tokens},
                                      folder.work(), pool, progress));
  TRY_ASSIGN(Checkpoint packed, Checkpoint::open(folder.work()));
  packed.take_place_of(source);
  return packed;
}

Result<models::PackedModel> pack_into_folder(const Checkpoint& source,
                                             const PackFolderOptions& options,
                                             const std::string& out, base::ThreadPool& pool,
                                             models::PackModelProgress progress) {
  TRY_ASSIGN(NewFolder folder, NewFolder::make(out));
  TRY(write_texts(source, folder.work()));
  TRY_ASSIGN(const SampleTokens sample, sample_tokens(source, kSampleTokens));
  TRY_ASSIGN(models::PackedModel packed, models::pack_model(source,
                                                            {.weights = options.weights,
                                                             .activations = options.activations,
                                                             .sample = sample.tokens},
                                                            folder.work(), pool, progress));
  TRY(folder.finish());
  return packed;
}

}  // namespace pelton::node
