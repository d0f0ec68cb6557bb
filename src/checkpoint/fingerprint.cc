#include "checkpoint/fingerprint.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/digest.h"

namespace pelton::checkpoint {
namespace {

constexpr size_t kDigits = 32;

// Empty if there is no such file. By whatever path it is named, it is the same.
std::string state_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  std::error_code failed;
  const std::string real = std::filesystem::canonical(path, failed).string();
  return fmt::format("{}\n{} {}.{}\n", failed ? path : real, status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec);
}

}  // namespace

Result<std::string> fingerprint(const Checkpoint& checkpoint) {
  base::Digest digest(base::Digest::Kind::kSha256);
  for (const base::MappedFile& file : checkpoint.files()) {
    const std::string state = state_of(file.path());
    if (state.empty()) {
      return Error{ErrorCode::kIo, fmt::format("{}: {}", file.path(), std::strerror(errno))};
    }
    digest.update(state);
  }
  for (const std::string& folder : checkpoint.text_folders()) {
    for (const char* name : {"config.json", "generation_config.json", "tokenizer.json"}) {
      digest.update(state_of(folder + "/" + name));
    }
  }
  return digest.finish().substr(0, kDigits);
}

}  // namespace pelton::checkpoint
