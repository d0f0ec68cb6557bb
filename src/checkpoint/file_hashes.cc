#include "checkpoint/file_hashes.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "base/digest.h"
#include "checkpoint/safetensors.h"

namespace pelton::checkpoint {
namespace {

constexpr size_t kPieceBytes = size_t{16} << 20;

// The large-file pointers of openai/gpt-oss-20b and of ggml-org's GGUF file of it.
struct Published {
  std::string_view name;
  int64_t bytes;
  std::string_view sha256;
};
constexpr Published kPublished[] = {
    {"model-00000-of-00002.safetensors", 4'792'272'488,
     "16d0f997dcfc4462089d536bffe51b4bcea2f872f5c430be09ef8ed392312427"},
    {"model-00001-of-00002.safetensors", 4'798'702'184,
     "4fbe328ab445455d6f58dc73852b85873bd626986310abd91cd4d2ce3245eaea"},
    {"model-00002-of-00002.safetensors", 4'170'342'232,
     "a18106b209e9ab35c3406db4f6f12a927364a058b21e9d1373d682e20674b303"},
    {"model.safetensors", 13'761'300'984,
     "3340a61d1a0391e8c5b5d3463d18d4c48129a84bbc04a554c762c99020aa06ed"},
    {"gpt-oss-20b-mxfp4.gguf", 12'109'566'560,
     "be37a636aca0fc1aae0d32325f82f6b4d21495f06823b5fbc1898ae0303e9935"},
};

bool is_sha256(std::string_view name) {
  return name.size() == 64 && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::optional<std::string_view> published_hash(std::string_view file_name, int64_t bytes) {
  for (const Published& file : kPublished) {
    if (file.name == file_name && file.bytes == bytes) return file.sha256;
  }
  return std::nullopt;
}

Result<std::vector<FileHash>> check_file_hashes(
    const Checkpoint& checkpoint, base::FunctionRef<void(int64_t, int64_t)> progress) {
  std::vector<FileHash> hashes;
  int64_t total = 0;
  for (const base::MappedFile& file : checkpoint.files()) {
    FileHash hash{.path = file.path(), .bytes = static_cast<int64_t>(file.bytes().size())};
    std::error_code error;
    const std::filesystem::path real = std::filesystem::canonical(file.path(), error);
    if (error) {
      return Error{ErrorCode::kIo, file.path() + ": cannot be found again: " + error.message()};
    }
    const std::string name = real.filename().string();
    if (is_sha256(checkpoint.tiles().sha256)) {
      hash.expected = checkpoint.tiles().sha256;
      hash.origin = "the file's own header";
      hash.begin = safetensors_data_begin(file.bytes());
    } else if (is_sha256(name)) {
      hash.expected = name;
      hash.origin = "the Hugging Face cache";
    } else if (const auto known = published_hash(
                   std::filesystem::path(file.path()).filename().string(), hash.bytes)) {
      hash.expected = *known;
      hash.origin = "the published file of that name and size";
    }
    if (!hash.expected.empty()) total += hash.bytes - hash.begin;
    hashes.push_back(std::move(hash));
  }
  int64_t done = 0;
  for (size_t i = 0; i < hashes.size(); ++i) {
    if (hashes[i].expected.empty()) continue;
    std::span<const uint8_t> bytes =
        checkpoint.files()[i].bytes().subspan(static_cast<size_t>(hashes[i].begin));
    base::Digest digest(base::Digest::Kind::kSha256);
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
      digest.update({reinterpret_cast<const char*>(piece.data()), piece.size()});
      bytes = bytes.subspan(piece.size());
      done += static_cast<int64_t>(piece.size());
      progress(done, total);
    }
    hashes[i].found = digest.finish();
  }
  return hashes;
}

}  // namespace pelton::checkpoint
