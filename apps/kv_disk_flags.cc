#include "apps/kv_disk_flags.h"

#include <utility>

#include <fmt/format.h>

#include "apps/secret_file.h"
#include "base/digest.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr std::string_view kAll = "all";
constexpr std::string_view kEvict = "evict";
constexpr int64_t kDiskBytesMin = 1 << 20;

Error refused(std::string message, std::string field) {
  return Error{ErrorCode::kInvalidArgument, std::move(message), std::move(field)};
}

}  // namespace

Flag kv_disk_key_flag() {
  return {.name = "--kv-disk-key-file",
          .value = "FILE",
          .help =
              "the secret that the blocks on --kv-disk are encrypted with, at least 32 bytes: "
              "the next start finds them again. Without it: one in memory only, so that a stop "
              "erases them",
          .may_be_empty = false};
}

std::vector<Flag> kv_disk_flags() {
  Flag key = kv_disk_key_flag();
  key.only_with = {{"--kv-disk"}};
  return {{.name = "--kv-disk",
           .value = "PATH",
           .help = "a folder of its own on a fast disk, for blocks of the prefix cache that the "
                   "host's memory (--swap-space) has no room for",
           .may_be_empty = false,
           .not_with = {{"--enable-prefix-caching", {"false"}}}},
          {.name = "--kv-disk-size",
           .value = "BYTES",
           .help = "what it takes there, as 200GiB; reserved at the start",
           .kind = Flag::Kind::kSize,
           .least = 0,
           .only_with = {{"--kv-disk"}}},
          {.name = "--kv-disk-write",
           .value = "WHEN",
           .help = "which blocks are written: those that were found a second time, all when their "
                   "request ends, or those evicted from the device",
           .default_text = "selective",
           .choices = {"selective", std::string(kAll), std::string(kEvict)},
           .only_with = {{"--kv-disk"}}},
          std::move(key)};
}

Result<std::string> kv_disk_secret(const cli::Arguments& arguments) {
  return read_secret_file(arguments, "--kv-disk-key-file");
}

Result<void> read_kv_disk_flags(const cli::Arguments& arguments,
                                node::LoadedModel::Options& options) {
  // Not every verb that loads models has it.
  if (!arguments.knows("--kv-disk") || !arguments.has("--kv-disk")) return {};
  if (options.make_executor) {
    return refused("--kv-disk: a modelled executor computes no keys and values", "kv-disk");
  }
  if (!arguments.has("--kv-disk-size")) {
    return refused("--kv-disk needs --kv-disk-size, as 200GiB", "kv-disk");
  }
  if (options.executor.swap_bytes == 0) {
    return refused("--kv-disk: blocks pass through the host's memory; give --swap-space too",
                   "kv-disk");
  }
  if (arguments.list("MODEL").size() > 1) {
    return refused("--kv-disk is one model's; start a server for each", "kv-disk");
  }
  if (arguments.integer("--replicas") > 1) {
    return refused("--kv-disk is one replica's; start a server for each, with its own folder",
                   "kv-disk");
  }
  kv_transfer::DiskOptions& disk = options.executor.disk;
  disk.folder = arguments.text("--kv-disk");
  disk.bytes = arguments.integer("--kv-disk-size");
  if (disk.bytes < kDiskBytesMin) {
    return Error{ErrorCode::kBadConfig, fmt::format("--kv-disk-size {}: 1MiB at least", disk.bytes),
                 "kv-disk-size"};
  }
  TRY_ASSIGN(disk.secret, kv_disk_secret(arguments));
  if (!disk.secret.empty() && !options.engine.hash_seed) {
    options.engine.hash_seed = kv_transfer::name_seed(disk.secret);
  }
  // Names of another seed are never found.
  if (options.engine.hash_seed) {
    disk.identity = base::sha256(std::to_string(*options.engine.hash_seed)) + " ";
  }
  const std::string& writes = arguments.text("--kv-disk-write");
  options.engine.disk_writes = writes == kAll     ? kv::DiskWrites::kAll
                               : writes == kEvict ? kv::DiskWrites::kEvicted
                                                  : kv::DiskWrites::kSelective;
  return {};
}

}  // namespace pelton::apps
