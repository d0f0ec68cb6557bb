// pelton weights serve, mirror, ls, manifest, erase: models as chunks that are fetched, checked and
// given on.
#include <algorithm>
#include <filesystem>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/kept_copies.h"
#include "apps/listener_flags.h"
#include "apps/loading.h"
#include "apps/verbs.h"
#include "apps/weights_flags.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hub_cache.h"
#include "cli/human_size.h"
#include "cli/interrupt.h"
#include "cli/phased_progress.h"
#include "net/url.h"
#include "weights/copies.h"
#include "weights/mirror.h"
#include "weights/place_answers.h"
#include "weights/share_server.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr int kHashThreadsMax = 8;
constexpr std::chrono::seconds kLinger{120};

std::string human(int64_t bytes) {
  return cli::format_bytes(static_cast<double>(bytes));
}

Flag chunk_size_flag() {
  return {.name = "--chunk-size",
          .value = "SIZE",
          .help = "bytes of a chunk, a power of two from 64KiB to 64MiB",
          .kind = Flag::Kind::kSize,
          .default_text = "16MiB",
          .least = static_cast<double>(weights::kChunkBytesMin),
          .most = static_cast<double>(weights::kChunkBytesMax)};
}

Result<weights::MakeOptions> make_options(const cli::Arguments& arguments) {
  weights::MakeOptions options{.chunk_bytes = arguments.integer("--chunk-size")};
  if ((options.chunk_bytes & (options.chunk_bytes - 1)) != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--chunk-size {} is no power of two", options.chunk_bytes),
                 "chunk-size"};
  }
  options.threads =
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kHashThreadsMax);
  return options;
}

// What a folder is called where it is served: its last part, or a hub id's.
std::string name_of(const std::string& model) {
  std::filesystem::path path = std::filesystem::path(model).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  std::error_code failed;
  if (path.filename() == ".." || path.filename() == ".") {
    path = std::filesystem::canonical(path, failed);
  }
  return path.filename().string();
}

std::vector<Flag> serve_flags() {
  std::vector<Flag> flags = {
      {.name = "--host",
       .value = "ADDRESS",
       .help = "where to listen; beyond this machine only with --api-key or --open",
       .default_text = "127.0.0.1"},
      {.name = "--port",
       .value = "N",
       .help = "0: any free one",
       .kind = Flag::Kind::kInteger,
       .default_text = "8070",
       .most = 65535},
      chunk_size_flag(),
      {.name = "--rate",
       .value = "SIZE",
       .help = "at most so many bytes a second to all together, as 500MiB; 0: no bound",
       .kind = Flag::Kind::kSize,
       .default_text = "0"}};
  const std::set<std::string> wanted = {"--api-key",  "--open",    "--allowed-host",
                                        "--tls-cert", "--tls-key", "--tls-client-ca"};
  for (Flag& flag : listener_flags()) {
    if (wanted.contains(flag.name)) flags.push_back(std::move(flag));
  }
  return flags;
}

Result<weights::ShareServer::Options> share_options(const cli::Arguments& arguments) {
  weights::ShareServer::Options options{.address = arguments.text("--host"),
                                        .port = static_cast<int>(arguments.integer("--port")),
                                        .bytes_per_second_max = arguments.integer("--rate"),
                                        .id = fmt::format("{:016x}", system_seed())};
  TRY_ASSIGN(const net::AllowedHosts hosts, allowed_hosts(arguments));
  options.hosts = hosts.at(options.address);
  TRY_ASSIGN(options.tls, tls_identity(arguments));
  access::ApiKeys keys;
  if (arguments.has("--api-key")) {
    for (const std::string& key : arguments.list("--api-key")) {
      TRY(check_key(key, arguments.origin("--api-key")));
      keys.add(key);
    }
  }
  const bool asks = !keys.empty() || arguments.has("--tls-client-ca");
  if (!is_local(options.address) && !asks && !arguments.has("--open")) {
    return Error{ErrorCode::kBadConfig,
                 fmt::format("--host {} gives the weights to anyone who reaches this machine: give "
                             "--api-key or --tls-client-ca, or --open if that is meant",
                             options.address),
                 "host"};
  }
  if (!keys.empty()) {
    options.allows = [keys](std::string_view token, const std::string& /*digest*/) {
      return keys.principal_of(token) != nullptr;
    };
  }
  return options;
}

Result<weights::Manifest> hash_folder(const std::string& folder,
                                      const weights::MakeOptions& options,
                                      const cli::Interrupt& interrupt, const base::Clock& clock) {
  cli::PhasedProgress progress(clock);
  const std::string what = "hashing " + name_of(folder);
  return weights::manifest_of(folder, options, [&](int64_t done, int64_t total) {
    if (total > 0) progress.update(what, done, total);
    return !interrupt.pending();
  });
}

Result<void> serve(const cli::Arguments& arguments) {
  const base::SystemClock clock;
  base::Log log(clock, {});
  TRY_ASSIGN(const weights::MakeOptions making, make_options(arguments));
  TRY_ASSIGN(const weights::ShareServer::Options options, share_options(arguments));
  const cli::Interrupt interrupt;
  weights::ShareServer server(options, clock, log);
  // The port first: a taken one is reported before anything large is read.
  TRY(with_flag(server.start(), "host"));
  std::set<std::string> names;
  for (const std::string& model : arguments.list("FOLDER")) {
    if (!names.insert(name_of(model)).second) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("two folders are called {}: serve them apart", name_of(model)),
                   "FOLDER"};
    }
    TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(model, ""));
    TRY_ASSIGN(weights::Manifest manifest, hash_folder(folder, making, interrupt, clock));
    TRY_ASSIGN(std::shared_ptr<weights::ChunkFolder> chunks,
               weights::ChunkFolder::open(folder, std::move(manifest)));
    log.info(fmt::format("{}: {} in {} chunks", name_of(model), human(chunks->manifest().bytes()),
                         chunks->chunks().size()));
    server.add(name_of(model), std::move(chunks));
  }
  const std::string url = fmt::format("{}://{}", options.tls == nullptr ? "http" : "https",
                                      net::format_host_port(options.address, server.port()));
  TRY(write_output("listening on " + url + "\n"));
  interrupt.wait();
  server.stop();
  log.info(fmt::format("{} of weights sent", human(server.bytes_sent())));
  return {};
}

cli::Verb serve_weights_verb() {
  return {
      .name = "weights serve",
      .summary = "Gives models' files to other machines, in checked chunks.",
      .about =
          "Reads each file once, to know what each chunk's SHA-256 is; a copy that weights\n"
          "mirror made brings that along. Prints 'listening on URL' when it gives. Nodes\n"
          "that fetch the same model at once and share it get each other's addresses.",
      .positionals = {{.name = "FOLDER", .help = "a model folder or a hub id", .many = true}},
      .flags = serve_flags(),
      .examples = {"pelton weights serve ./my-model",
                   "pelton weights serve ./large ./small --host 0.0.0.0 --api-key secret"},
      .run = serve,
  };
}

Result<void> mirror(const cli::Arguments& arguments) {
  const base::SystemClock clock;
  base::Log log(clock, {});
  std::vector<std::string> from = arguments.list("--peer");
  from.push_back(arguments.text("URL"));
  weights::MirrorOptions options;
  TRY_ASSIGN(options.fetch, weights_fetch_options(arguments, from, clock, log));
  options.folder = arguments.text("DEST");
  options.name = name_of(options.folder);
  options.linger = kLinger;
  TRY_ASSIGN(const std::unique_ptr<weights::ShareServer> share,
             open_weights_share(arguments, options.fetch, clock, log));
  options.share = share.get();
  const cli::Interrupt interrupt;
  cli::PhasedProgress progress(clock);
  bool waits = false;
  Result<weights::MirrorReport> report =
      weights::mirror(options, clock, [&](const weights::MirrorProgress& now) {
        const std::string_view what = weights_phase(now);
        if (!what.empty()) progress.update(what, now.done, now.total);
        const bool is_waiting = now.phase == weights::MirrorProgress::Phase::kWaiting;
        if (is_waiting && !std::exchange(waits, true)) {
          log.info(fmt::format("another process fetches {}: waiting for it", options.folder));
        }
        return !interrupt.pending();
      });
  progress.clear();
  if (!report.ok() && report.error().code == ErrorCode::kCancelled) {
    return Error{ErrorCode::kCancelled,
                 "interrupted; what has come is kept, the same command continues"};
  }
  TRY(report);
  fmt::print(stderr, "{}: {}, in {}\n", options.folder, weights_report(*report),
             cli::format_duration(report->manifest_seconds + report->fetch_seconds));
  return write_output(report->folder + "\n");
}

cli::Verb mirror_weights_verb() {
  cli::Verb verb{
      .name = "weights mirror",
      .summary = "Fetches a model from weights serve, a web server or S3 into a folder.",
      .about =
          "Checks each chunk before it counts, continues what was interrupted, and gives the\n"
          "folder its name when all is there. One that shares what it has (--weights-share-port)\n"
          "stays until the others that it knows have everything. AWS_ACCESS_KEY_ID,\n"
          "AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT_URL mean what\n"
          "they mean to Amazon's own tools.",
      .positionals = {{.name = "URL",
                       .help = "http://host:8070/NAME, https:// or s3://bucket/path; there lies "
                               "pelton-manifest.json"},
                      {.name = "DEST", .help = "a new folder, or one that this made before"}},
      .flags = {{.name = "--peer",
                 .value = "URL",
                 .help = "ask there first; URL says what is right. May be given again",
                 .many = true,
                 .may_be_empty = false}},
      .examples = {"pelton weights mirror http://10.0.0.5:8070/my-model ./my-model",
                   "pelton weights mirror s3://models/my-model ./my-model",
                   "pelton weights mirror http://10.0.0.5:8070/my-model /data/my-model "
                   "--weights-share-port 8071"},
      .run = mirror,
  };
  for (Flag& flag : weights_source_flags()) verb.flags.push_back(std::move(flag));
  return verb;
}

Result<void> ls(const cli::Arguments& arguments) {
  TRY_ASSIGN(const std::vector<weights::Copy> copies, copies_in(arguments.text("FOLDER")));
  if (arguments.has("--json")) {
    Json::Array array;
    for (const weights::Copy& copy : copies) array.push_back(copy_json(copy));
    return write_output(Json(std::move(array)).dump() + "\n");
  }
  if (copies.empty()) {
    return write_text(fmt::format("no copies in {}\n", arguments.text("FOLDER")));
  }
  std::string out;
  for (const weights::Copy& copy : copies) out += copy_row(copy);
  return write_text(out);
}

cli::Verb ls_weights_verb() {
  return {
      .name = "weights ls",
      .summary = "Lists the copies that weights mirror and serve --weights-from have made.",
      .positionals = {{.name = "FOLDER", .help = "a copy, or the folder that copies lie in"}},
      .flags = {{.name = "--json",
                 .help = "a JSON array instead of a table",
                 .kind = Flag::Kind::kSwitch}},
      .examples = {"pelton weights ls /data/models", "pelton weights ls /data/models --json"},
      .run = ls,
  };
}

Result<void> manifest(const cli::Arguments& arguments) {
  const base::SystemClock clock;
  TRY_ASSIGN(const weights::MakeOptions making, make_options(arguments));
  TRY_ASSIGN(const std::string folder, checkpoint::resolve_model(arguments.text("FOLDER"), ""));
  const cli::Interrupt interrupt;
  cli::PhasedProgress progress(clock);
  const std::string what = "hashing " + name_of(folder);
  // Whatever manifest lies there: this one is to be right.
  TRY_ASSIGN(const weights::Manifest made,
             weights::make_manifest(folder, making, [&](int64_t done, int64_t total) {
               if (total > 0) progress.update(what, done, total);
               return !interrupt.pending();
             }));
  return write_output(made.to_json() + "\n");
}

cli::Verb manifest_weights_verb() {
  return {
      .name = "weights manifest",
      .summary = "Prints a model folder's manifest: what a bucket or web server needs beside it.",
      .about =
          "Put it beside the model's files, as pelton-manifest.json; then they can be mirrored\n"
          "from there.",
      .positionals = {{.name = "FOLDER", .help = "a model folder or a hub id"}},
      .flags = {chunk_size_flag()},
      .examples = {"pelton weights manifest ./my-model > pelton-manifest.json"},
      .run = manifest,
  };
}

Result<void> erase(const cli::Arguments& arguments) {
  const std::string& folder = arguments.text("FOLDER");
  if (!arguments.has("--all")) return erase_kept_copy(folder);
  TRY_ASSIGN(const std::vector<weights::Copy> copies, copies_in(folder));
  if (copies.empty()) fmt::print(stderr, "no copies in {}\n", folder);
  for (const weights::Copy& copy : copies) TRY(erase_kept_copy(copy.folder));
  return {};
}

cli::Verb erase_weights_verb() {
  return {
      .name = "weights erase",
      .summary = "Deletes a copy of a model, to the last byte.",
      .about =
          "What was begun of it too, and its lock. Only what weights mirror or serve\n"
          "--weights-from made: files that were put beside it stay. A model that is being\n"
          "served from there keeps its bytes until that process ends.",
      .positionals = {{.name = "FOLDER", .help = "the copy"}},
      .flags = {{.name = "--all",
                 .help = "every copy that lies in FOLDER",
                 .kind = Flag::Kind::kSwitch}},
      .examples = {"pelton weights erase ./my-model", "pelton weights erase /data/models --all"},
      .run = erase,
  };
}

}  // namespace

std::vector<cli::Verb> weights_verbs() {
  return {serve_weights_verb(), mirror_weights_verb(), ls_weights_verb(), manifest_weights_verb(),
          erase_weights_verb()};
}

}  // namespace pelton::apps
