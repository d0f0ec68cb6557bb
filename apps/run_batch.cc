// pelton run-batch: the requests of a file, answered by a model of this process, without a server.
// They go the way of `pelton serve`'s batches; what is answered already is kept in a folder beside
// the output, so that the same command goes on where it was.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "apps/engine_flags.h"
#include "apps/input.h"
#include "apps/life_cycle.h"
#include "apps/loading.h"
#include "apps/lora_flags.h"
#include "apps/model_fetch.h"
#include "apps/model_host.h"
#include "apps/reporting.h"
#include "apps/serve_foreign_flags.h"
#include "apps/verbs.h"
#include "apps/version.h"
#include "base/digest.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "server/batches.h"
#include "server/random_id.h"
#include "server/server.h"
#include "store/batch_store.h"

namespace pelton::apps {
namespace {

namespace fs = std::filesystem;
using cli::Flag;

constexpr int64_t kJournalBytesMax = int64_t{1} << 44;  // the disk is the bound
constexpr std::chrono::milliseconds kLook{200};

Error usage(std::string message, std::string_view flag) {
  return {ErrorCode::kInvalidArgument, std::move(message), std::string(flag)};
}

// What has been answered so far: one batch, of the whole input.
struct Journal {
  std::string folder;
  std::unique_ptr<store::BatchStore> store;
  store::StoredBatch batch;
  bool goes_on = false;  // another process began it
};

// The batch that is in the folder, be it at its end, or a new one. Another input than it was begun
// with is refused: its answers would be a mixture.
Result<Journal> open_journal(const std::string& output, const std::string& input,
                             const base::Clock& clock, base::Log& log, uint64_t seed) {
  Journal journal{.folder = output + ".journal"};
  std::error_code ignored;
  const bool is_other = fs::exists(journal.folder, ignored) &&
                        !fs::exists(journal.folder + "/batches.sqlite", ignored) &&
                        !fs::is_empty(journal.folder, ignored);
  if (is_other) {
    return usage(fmt::format("{} is there and no journal of this verb", journal.folder), "output");
  }
  TRY_ASSIGN(journal.store,
             store::BatchStore::open(journal.folder, {.bytes_max = kJournalBytesMax}, clock, log));
  const std::string name = base::sha256(input);
  TRY_ASSIGN(const std::vector<store::StoredFile> files,
             journal.store->list_files({.owner = "", .purpose = "batch"}));
  TRY_ASSIGN(const std::vector<store::StoredBatch> batches,
             journal.store->list_batches({.owner = ""}));
  if (!files.empty() && files.back().name != name) {
    return usage(
        fmt::format("{} was begun with another input; remove it to begin anew", journal.folder),
        "input");
  }
  if (!batches.empty()) {
    journal.batch = batches.back();
    journal.goes_on = true;
    return journal;
  }
  store::StoredFile file{.id = server::random_id("file-", {.seed = seed, .counter = 0}),
                         .name = name,
                         .purpose = "batch",
                         .created_at = journal.store->now_s()};
  if (files.empty()) {
    TRY_ASSIGN(file, journal.store->add_file(std::move(file), input));
  } else {
    file = files.back();
  }
  journal.batch = {.id = server::random_id("batch_", {.seed = seed, .counter = 1}),
                   .input_file = file.id,
                   .created_at = journal.store->now_s()};
  TRY(journal.store->add_batch(journal.batch));
  return journal;
}

// What the store has made there, and the folder if nothing else is in it.
void remove_journal(const std::string& folder) {
  std::error_code ignored;
  fs::remove_all(folder + "/files", ignored);
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    fs::remove(folder + "/batches.sqlite" + suffix, ignored);
  }
  fs::remove(folder, ignored);
}

// "line 3: 'url' must be …", the first few.
Error refused(const store::StoredBatch& batch, const std::string& input) {
  constexpr size_t kShown = 5;
  std::string text;
  const Result<Json> errors = Json::parse(batch.errors);
  size_t count = 0;
  if (errors.ok() && errors->is_array()) {
    count = errors->as_array().size();
    for (size_t i = 0; i < std::min(count, kShown); ++i) {
      const Json& one = errors->as_array()[i];
      const std::optional<int64_t> line = one.integer("line");
      text += fmt::format("\n  {}{}", line ? fmt::format("line {}: ", *line) : "",
                          one.string("message").value_or(""));
    }
  }
  if (count > kShown) text += fmt::format("\n  and {} more", count - kShown);
  return usage(fmt::format("{}: nothing was run:{}", input, text), "input");
}

// Both of the batch's files as one, answers before errors: each line of the input once. Beside the
// output first: it is whole or not there.
Result<void> write_answers(const store::StoredBatch& batch, store::BatchStore& store,
                           const std::string& output) {
  const std::string partial = output + ".partial";
  {
    std::ofstream file(partial, std::ios::binary | std::ios::trunc);
    for (const std::string& id : {batch.output_file, batch.error_file}) {
      if (id.empty()) continue;
      TRY_ASSIGN(const std::unique_ptr<std::istream> content,
                 store.open_content({.owner = batch.owner, .id = id}));
      file << content->rdbuf();
    }
    file.flush();
    if (!file) {
      return Error{ErrorCode::kIo, fmt::format("{}: cannot be written", partial), "output"};
    }
  }
  std::error_code failed;
  fs::rename(partial, output, failed);
  if (failed)
    return Error{ErrorCode::kIo, fmt::format("{}: {}", output, failed.message()), "output"};
  return {};
}

// Runs the batch to its end, or until a signal.
Result<store::StoredBatch> run_to_the_end(server::Server& server, Journal& journal, int concurrency,
                                          const cli::Interrupt& interrupt, const base::Clock& clock,
                                          base::Log& log) {
  if (store::has_ended(journal.batch.status)) return journal.batch;
  std::promise<store::StoredBatch> ended;
  std::future<store::StoredBatch> end = ended.get_future();
  cli::Progress progress("requests", cli::Progress::Unit::kCount, clock);
  server::Batches batches(
      {.concurrency = concurrency,
       .lines_max = INT64_MAX - 1,
       .line_bytes_max = int64_t{32} << 20,
       .output_age_s = 0},
      {.store = *journal.store,
       .send =
           [&server](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
                     const access::Principal& principal) {
             server.handle_as(std::move(request), std::move(exchange), principal);
           },
       .make_id =
           [&server](std::string_view prefix) {
             return server::random_id(prefix, {.seed = server.services().draw(), .counter = 0});
           },
       .log = log,
       .on_end = [&ended](const store::StoredBatch& batch) { ended.set_value(batch); }});
  batches.start();
  while (end.wait_for(kLook) != std::future_status::ready) {
    if (interrupt.pending()) {
      return Error{ErrorCode::kCancelled,
                   "interrupted; what has been answered is kept, the same command goes on", ""};
    }
    std::promise<store::StoredBatch> asked;
    batches.post([&] {
      Result<store::StoredBatch> now = batches.find({.owner = "", .id = journal.batch.id});
      asked.set_value(now.ok() ? *std::move(now) : journal.batch);
    });
    const store::StoredBatch now = asked.get_future().get();
    if (now.in_progress_at != 0) progress.update(now.completed + now.failed, now.total);
  }
  return end.get();
}

// A file that is not there yet, or may be replaced: where a link leads.
Result<std::string> output_path(const cli::Arguments& arguments) {
  const std::string& output = arguments.text("--output");
  if (output == "-") return usage("answers go to a file, not to standard output", "output");
  std::error_code ignored;
  const bool may_replace = arguments.has("--overwrite");
  if (!fs::exists(output, ignored)) return output;
  if (!may_replace) {
    return usage(fmt::format("{} is there already; --overwrite replaces it", output), "output");
  }
  if (!fs::is_regular_file(output, ignored)) {
    return usage(fmt::format("{} is no file that could be replaced", output), "output");
  }
  return fs::canonical(output, ignored).string();
}

Result<void> run_run_batch(const cli::Arguments& arguments) {
  const base::SystemClock clock;
  if (arguments.has("--offline")) ::setenv("HF_HUB_OFFLINE", "1", 1);
  const std::string& input_name = arguments.text("--input");
  TRY_ASSIGN(const std::string output, output_path(arguments));
  TRY(ModelHost::options_of(arguments, clock));
  TRY(check_date(arguments));
  TRY_ASSIGN(const std::vector<node::NamedModel> named, named_models(arguments));
  base::Log log(clock, {.level = log_level(arguments)});
  const cli::Interrupt interrupt;
  TRY_ASSIGN(const std::string input, read_input(input_name));

  server::Server::Options options;
  options.version = kVersion;
  options.sampled_turn_tokens_max = 0;
  if (arguments.has("--seed")) {
    options.sampling_seed = static_cast<uint64_t>(arguments.integer("--seed"));
  }
  server::Server server(options, clock, log);
  server::FaultInjection faults;
  node::TokenizerCache tokenizers;
  TRY_ASSIGN(Journal journal, open_journal(output, input, clock, log, server.services().draw()));
  ModelHost models({.arguments = arguments,
                    .interrupt = interrupt,
                    .server = server,
                    .clock = clock,
                    .log = log,
                    .faults = faults,
                    .tokenizers = tokenizers,
                    .sleep_after_ns = std::nullopt,
                    .health_changed = [] {},
                    .limits = [](const engine::Engine::Options&) { return ModelHost::Limits(); }});
  TRY(models.load(named));
  if (journal.goes_on) log.info(fmt::format("goes on with {}", journal.folder));
  const int concurrency = static_cast<int>(arguments.integer("--max-num-seqs"));
  const Result<store::StoredBatch> ended =
      run_to_the_end(server, journal, concurrency, interrupt, clock, log);
  server.drain();
  models.stop_watching();
  server.services().stop_pools();
  if (!ended.ok()) return ended.error();
  if (ended->status == store::BatchStatus::kFailed) {
    journal.store.reset();
    remove_journal(journal.folder);
    return refused(*ended, input_name);
  }
  TRY(write_answers(*ended, *journal.store, output));
  journal.store.reset();
  remove_journal(journal.folder);
  fmt::print(stderr, "{}: {} answered, {} with an error\n", output, ended->completed,
             ended->failed);
  return {};
}

std::vector<Flag> run_batch_flags() {
  std::vector<Flag> flags = {
      {.name = "--input",
       .value = "FILE",
       .help = "the requests, a line each: {\"custom_id\", \"method\": \"POST\", \"url\", "
               "\"body\"}; - is standard input",
       .required = true,
       .aliases = {"-i", "--input-file"},
       .may_be_empty = false},
      {.name = "--output",
       .value = "FILE",
       .help = "the answers, a line each; FILE.journal has them until all are there",
       .required = true,
       .aliases = {"-o", "--output-file"},
       .may_be_empty = false},
      {.name = "--overwrite",
       .help = "replace the output that is there",
       .kind = Flag::Kind::kSwitch},
      {.name = "--seed",
       .value = "S",
       .help = "base of the seeds of requests that give none, in the order in which they are sent; "
               "default: random at each start",
       .kind = Flag::Kind::kInteger},
      {.name = "--log-level",
       .value = "LEVEL",
       .help = "the least of what is logged",
       .default_text = "warning",
       .choices = {"debug", "info", "warning", "error"}},
      offline_flag()};
  const auto add = [&](std::vector<Flag> more) {
    for (Flag& flag : more) flags.push_back(std::move(flag));
  };
  add(answer_flags());
  add(model_name_flags());
  add(batch_flags());
  add(queue_flags());
  add(prompt_flags());
  add(lora_flags());
  add(model_flags());
  add(watch_flags());
  return flags;
}

}  // namespace

cli::Verb run_batch_verb() {
  return {
      .name = "run-batch",
      .summary = "Answers the requests of a file, without a server.",
      .about =
          "Lines are requests as OpenAI's Batch API has them, to /v1/chat/completions,\n"
          "/v1/completions, /v1/responses, /v1/embeddings, /v1/rerank or /v1/score; what a line\n"
          "may say is checked for all of them before anything is run. Each custom_id stands in "
          "the\n"
          "output once. Interrupted or killed, the same command goes on where it was.",
      .positionals = {{.name = "MODEL",
                       .help = "a model folder, a .gguf file or a hub id; several share memory",
                       .many = true,
                       .variables = {"PELTON_MODEL"}}},
      .flags = run_batch_flags(),
      .examples = {"pelton run-batch -i in.jsonl -o out.jsonl openai/gpt-oss-20b",
                   "pelton run-batch -i in.jsonl -o out.jsonl ./model --max-num-seqs 64"},
      .run = run_run_batch,
      .foreign = serve_foreign_flags(),
  };
}

}  // namespace pelton::apps
