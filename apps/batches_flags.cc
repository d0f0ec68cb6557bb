#include "apps/batches_flags.h"

#include "apps/response_store_flags.h"

namespace pelton::apps {

using cli::Flag;

std::vector<Flag> batches_flags() {
  std::vector<Flag> flags = {
      {.name = "--batches",
       .value = "FOLDER",
       .help = "keep files (/v1/files) and run batches (/v1/batches) in this folder, which one "
               "process has; they go on where they were after a crash",
       .may_be_empty = false},
      {.name = "--batches-bytes",
       .value = "BYTES",
       .help = "at most so much of files and of answers that are kept",
       .kind = Flag::Kind::kSize,
       .default_text = "4GiB",
       .least = 1 << 16},
      {.name = "--batches-age",
       .value = "SECONDS",
       .help = "output files go after so long, unless their batch says (output_expires_after)",
       .kind = Flag::Kind::kInteger,
       .default_text = "2592000",
       .least = 60,
       .most = 3'153'600'000},
      {.name = "--max-batch-requests",
       .value = "N",
       .help = "requests of batches that run at once; at most half of a model's slots",
       .kind = Flag::Kind::kInteger,
       .default_text = "8",
       .least = 1,
       .most = 1024},
      {.name = "--max-batch-lines",
       .value = "N",
       .help = "of one batch",
       .kind = Flag::Kind::kInteger,
       .default_text = "50000",
       .least = 1,
       .most = 10'000'000},
      {.name = "--max-batch-line-bytes",
       .value = "BYTES",
       .help = "of one line",
       .kind = Flag::Kind::kSize,
       .default_text = "4MiB",
       .least = 1 << 10,
       .most = 1 << 25}};
  for (size_t i = 1; i < flags.size(); ++i) flags[i].only_with = {{"--batches"}};
  return flags;
}

Result<std::unique_ptr<store::BatchStore>> open_batch_store(const cli::Arguments& arguments,
                                                            const base::Clock& clock,
                                                            base::Log& log) {
  if (!arguments.has("--batches")) return std::unique_ptr<store::BatchStore>();
  TRY_ASSIGN(const std::vector<std::string> secrets, store_secrets(arguments));
  const std::string& folder = arguments.text("--batches");
  if (secrets.empty()) {
    log.info(folder + " is not encrypted: --store-key-file names what it would be encrypted with");
  }
  auto store = store::BatchStore::open(folder, {.bytes_max = arguments.integer("--batches-bytes")},
                                       clock, log, secrets);
  if (store.ok() || store.error().field == "store-key-file") return store;
  return Error{store.error().code, "--batches: " + store.error().message, "batches"};
}

server::Batches::Options batches_options(const cli::Arguments& arguments) {
  return {.concurrency = static_cast<int>(arguments.integer("--max-batch-requests")),
          .lines_max = arguments.integer("--max-batch-lines"),
          .line_bytes_max = arguments.integer("--max-batch-line-bytes"),
          .output_age_s = arguments.integer("--batches-age")};
}

}  // namespace pelton::apps
