#include "executor/rank_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/digest.h"
#include "checkpoint/layout.h"

namespace pelton::executor {
namespace {

// Read by one thread at a time: large against a thread's turn, small against a file.
constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr size_t kConfigBytesMax = size_t{16} << 20;

// Of the digests of its pieces, whoever has read them.
std::string digest_of(const base::MappedFile& file, base::ThreadPool& pool) {
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()),
                               file.bytes().size());
  const auto size = static_cast<int64_t>(bytes.size());
  const int64_t count = (size + kPieceBytes - 1) / kPieceBytes;
  std::vector<std::string> pieces(static_cast<size_t>(count));
  pool.parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      pieces[static_cast<size_t>(i)] = base::sha256(
          bytes.substr(static_cast<size_t>(i * kPieceBytes), static_cast<size_t>(kPieceBytes)));
    }
  });
  base::Digest digest(base::Digest::Kind::kSha256);
  digest.update(fmt::format("{} bytes", size));
  for (const std::string& piece : pieces) digest.update(piece);
  return digest.finish();
}

Result<std::string> place_of(const base::MappedFile& file) {
  struct stat status {};
  if (::fstat(file.descriptor(), &status) == 0) {
    return fmt::format("inode {} of device {}", status.st_ino, status.st_dev);
  }
  return Error{ErrorCode::kIo, fmt::format("{}: {}", file.path(), std::strerror(errno))};
}

}  // namespace

Result<RankFiles> rank_files(const checkpoint::Checkpoint& checkpoint, const std::string& model,
                             SameBy by, base::ThreadPool& pool) {
  RankFiles files;
  TRY_ASSIGN(const checkpoint::Layout layout, checkpoint::find_layout(model));
  for (const char* const name : {"config.json", "params.json"}) {
    const std::string path = layout.config_folder + "/" + name;
    std::error_code ignored;
    if (layout.config_folder.empty() || !std::filesystem::exists(path, ignored)) continue;
    TRY_ASSIGN(const std::string text, base::read_file(path, kConfigBytesMax));
    files[name] = base::sha256(text);
  }
  const std::vector<base::MappedFile>& mapped = checkpoint.files();
  for (size_t i = 0; i < mapped.size(); ++i) {
    std::string& said = files[fmt::format("weights, file {} of {}", i + 1, mapped.size())];
    if (by == SameBy::kBytes) {
      said = digest_of(mapped[i], pool);
    } else {
      TRY_ASSIGN(said, place_of(mapped[i]));
    }
  }
  return files;
}

Json to_json(const RankFiles& files) {
  Json json((Json::Object()));
  for (const auto& [name, said] : files) json.set(name, said);
  return json;
}

Result<RankFiles> rank_files_of(std::string_view text) {
  const Error bad{ErrorCode::kBadConfig, "what the leader says of its files cannot be read"};
  TRY_ASSIGN(const Json json, Json::parse(text));
  if (!json.is_object()) return bad;
  RankFiles files;
  for (const auto& [name, said] : json.as_object()) {
    if (!said.is_string()) return bad;
    files.emplace(name, said.as_string());
  }
  return files;
}

}  // namespace pelton::executor
