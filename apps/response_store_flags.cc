#include "apps/response_store_flags.h"

#include <string>

#include "apps/secret_file.h"
#include "store/memory_response_store.h"
#include "store/sqlite_response_store.h"

namespace pelton::apps {

using cli::Flag;

std::vector<Flag> response_store_flags() {
  const std::vector<cli::Circumstance> no_store = {{"--response-store", {"none"}}};
  return {
      {.name = "--response-store",
       .value = "WHERE",
       .help = "where responses of /v1/responses are kept: memory, sqlite:FILE or none",
       .default_text = "memory"},
      {.name = "--response-store-entries",
       .value = "N",
       .help = "at most so many; those asked for longest ago go first",
       .kind = Flag::Kind::kInteger,
       .default_text = "10000",
       .least = 1,
       .most = 100'000'000,
       .not_with = no_store},
      {.name = "--response-store-bytes",
       .value = "BYTES",
       .help = "at most so much of their texts and tokens",
       .kind = Flag::Kind::kSize,
       .default_text = "256MiB",
       .least = 1 << 16,
       .not_with = no_store},
      {.name = "--response-store-age",
       .value = "SECONDS",
       .help = "one that nobody asks for so long is forgotten",
       .kind = Flag::Kind::kInteger,
       .default_text = "2592000",
       .least = 1,
       .most = 3'153'600'000,
       .not_with = no_store},
      {.name = "--store-key-file",
       .value = "FILE",
       .help = "the secret that what --response-store and --batches keep on a disk is encrypted "
               "with, at least 32 bytes, a key for each tenant; further lines are secrets of "
               "before. Without it: not encrypted",
       .may_be_empty = false},
      {.name = "--sampled-turn-tokens",
       .value = "N",
       .help = "tokens of answered turns that are kept, so that a tool loop's next request "
               "finds what was computed; 0: none",
       .kind = Flag::Kind::kSize,
       .default_text = "4M"},
      {.name = "--reasoning-key-file",
       .value = "FILE",
       .help = "the secret that encrypted reasoning of /v1/responses is made with, at least 32 "
               "bytes; servers of one secret, and the next start, read each other's. "
               "Without it: a new one at each start",
       .may_be_empty = false}};
}

Result<std::string> reasoning_key(const cli::Arguments& arguments) {
  return read_secret_file(arguments, "--reasoning-key-file");
}

Result<std::vector<std::string>> store_secrets(const cli::Arguments& arguments) {
  // Not every verb that keeps batches has it.
  if (!arguments.knows("--store-key-file")) return std::vector<std::string>();
  return read_secrets_file(arguments, "--store-key-file");
}

Result<std::unique_ptr<store::ResponseStore>> open_response_store(const cli::Arguments& arguments,
                                                                  const base::Clock& clock,
                                                                  base::Log& log) {
  const store::StoreBounds bounds{.entries_max = arguments.integer("--response-store-entries"),
                                  .bytes_max = arguments.integer("--response-store-bytes"),
                                  .age_max_s = arguments.integer("--response-store-age")};
  constexpr std::string_view kSqlite = "sqlite:";
  const std::string& where = arguments.text("--response-store");
  if (arguments.has("--store-key-file") && !where.starts_with(kSqlite) &&
      !arguments.has("--batches")) {
    return Error{
        ErrorCode::kInvalidArgument,
        "--store-key-file: nothing is kept on a disk; give --response-store sqlite:FILE or "
        "--batches FOLDER",
        "store-key-file"};
  }
  if (where == "none") return std::unique_ptr<store::ResponseStore>();
  if (where == "memory") {
    return std::unique_ptr<store::ResponseStore>(
        std::make_unique<store::MemoryResponseStore>(bounds, clock));
  }
  if (where.starts_with(kSqlite) && where.size() > kSqlite.size()) {
    TRY_ASSIGN(const std::vector<std::string> secrets, store_secrets(arguments));
    const std::string file = where.substr(kSqlite.size());
    if (secrets.empty()) {
      log.info(file + " is not encrypted: --store-key-file names what it would be encrypted with");
    }
    return store::SqliteResponseStore::open(file, bounds, clock, log, secrets);
  }
  return Error{ErrorCode::kInvalidArgument,
               "--response-store must be 'memory', 'sqlite:FILE' or 'none', not '" + where + "'",
               "response-store"};
}

}  // namespace pelton::apps
