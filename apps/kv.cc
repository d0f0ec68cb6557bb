// pelton kv ls, check, erase: what serve --kv-disk has left in a folder.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/kv_disk_flags.h"
#include "apps/verbs.h"
#include "base/authenticated_cipher.h"
#include "base/sync_path.h"
#include "cli/human_size.h"
#include "kv_transfer/block_store.h"

namespace pelton::apps {
namespace {

using kv_transfer::SlotFile;

struct Opened {
  std::unique_ptr<SlotFile> file;
  std::vector<SlotFile::Found> slots;  // of the tenant, if there is one
  std::string secret;
};

Result<Opened> open(const cli::Arguments& arguments) {
  Opened opened;
  TRY_ASSIGN(opened.secret, kv_disk_secret(arguments));
  if (arguments.has("--tenant") && opened.secret.empty()) {
    return Error{ErrorCode::kInvalidArgument, "--tenant needs --kv-disk-key-file", "tenant"};
  }
  TRY_ASSIGN(opened.file, SlotFile::open_existing(arguments.text("PATH")));
  TRY_ASSIGN(opened.slots, opened.file->list());
  if (!arguments.has("--tenant")) return opened;
  const uint64_t owner = kv_transfer::owner_of(opened.secret, arguments.text("--tenant"));
  std::erase_if(opened.slots,
                [&](const SlotFile::Found& slot) { return slot.header.owner != owner; });
  return opened;
}

Result<void> ls(const cli::Arguments& arguments) {
  TRY_ASSIGN(const Opened opened, open(arguments));
  std::string out;
  const kv_transfer::FileHeader& header = opened.file->header();
  for (uint32_t group = 0; group < header.group_count; ++group) {
    int64_t used = 0;
    for (const SlotFile::Found& one : opened.slots) {
      if (one.slot.group == static_cast<int>(group)) ++used;
    }
    const auto size = static_cast<double>(opened.file->slot_bytes(static_cast<int>(group)));
    out += fmt::format("group {}: {} blocks of {}, {} of {}\n", group, used,
                       cli::format_bytes(size), cli::format_bytes(size * static_cast<double>(used)),
                       cli::format_bytes(size * header.groups[group].slot_count));
  }
  return write_text(out);
}

Result<void> check(const cli::Arguments& arguments) {
  TRY_ASSIGN(const Opened opened, open(arguments));
  const base::AuthenticatedCipher cipher = kv_transfer::cipher_of(opened.secret);
  int64_t damaged = 0;
  for (const SlotFile::Found& one : opened.slots) {
    kv_transfer::AlignedBuffer slot(static_cast<size_t>(opened.file->slot_bytes(one.slot.group)));
    const Result<void> read = opened.file->read(one.slot, slot.bytes());
    const auto group = static_cast<size_t>(one.slot.group);
    const bool is_whole =
        read.ok() &&
        kv_transfer::opens(cipher, one.header, {slot.bytes().data(), slot.bytes().size()},
                           opened.file->header().groups[group].block_bytes);
    damaged += is_whole ? 0 : 1;
  }
  TRY(write_text(fmt::format("{} blocks, {} damaged\n", opened.slots.size(), damaged)));
  if (damaged == 0) return {};
  return Error{
      ErrorCode::kIo,
      "damaged blocks are computed again when they are asked for; of another key's all are"};
}

// One that was cut or is none: as a start without a key file does, whose own file goes in the place
// of what lies there, and has no name either.
Result<void> remove(const std::string& folder) {
  TRY(SlotFile::open({.folder = folder, .header = {}, .keeps = false}));
  TRY(base::sync_path(folder));
  return write_text("what lay there was damaged, and is removed\n");
}

Result<void> erase(const cli::Arguments& arguments) {
  Result<Opened> found = open(arguments);
  const bool is_damaged = !found.ok() && found.error().code == ErrorCode::kIo;
  if (is_damaged && !arguments.has("--tenant")) return remove(arguments.text("PATH"));
  TRY_ASSIGN(const Opened opened, std::move(found));
  if (arguments.has("--tenant")) {
    if (opened.slots.empty()) {
      return Error{ErrorCode::kInvalidArgument,
                   "no block here is that tenant's, by this key file: the key is another one, or "
                   "there is nothing of it",
                   "tenant"};
    }
    for (const SlotFile::Found& one : opened.slots) TRY(opened.file->erase(one.slot));
  } else {
    TRY(opened.file->next_generation());
  }
  return write_text(fmt::format("{} blocks erased\n", opened.slots.size()));
}

cli::Positional path() {
  return {.name = "PATH", .help = "the folder that serve --kv-disk was given"};
}

std::vector<cli::Flag> tenant_flags() {
  cli::Flag key = kv_disk_key_flag();
  key.help = "serve's; tenants are known by it only";
  key.only_with = {{"--tenant"}};
  return {{.name = "--tenant", .value = "NAME", .help = "only this tenant's blocks"}, key};
}

}  // namespace

std::vector<cli::Verb> kv_verbs() {
  cli::Flag key = kv_disk_key_flag();
  key.help = "serve's";
  key.required = true;
  return {
      {.name = "kv ls",
       .summary = "Says what a disk tier of the prefix cache holds.",
       .about = "While no server uses it. Only one that has a key file leaves anything.",
       .positionals = {path()},
       .flags = tenant_flags(),
       .examples = {"pelton kv ls /var/lib/pelton/kv"},
       .run = ls},
      {.name = "kv check",
       .summary = "Reads and verifies all blocks of a disk tier.",
       .positionals = {path()},
       .flags = {{.name = "--tenant", .value = "NAME", .help = "only this tenant's blocks"}, key},
       .examples = {"pelton kv check /var/lib/pelton/kv --kv-disk-key-file kv.key"},
       .run = check},
      {.name = "kv erase",
       .summary = "Erases a disk tier's blocks, or one tenant's.",
       .about = "While no server uses it. Without --tenant also a file that was cut or damaged.",
       .positionals = {path()},
       .flags = tenant_flags(),
       .exclusive = {{"--tenant"}},
       .examples = {"pelton kv erase /var/lib/pelton/kv",
                    "pelton kv erase /var/lib/pelton/kv --tenant acme --kv-disk-key-file kv.key"},
       .run = erase}};
}

}  // namespace pelton::apps
