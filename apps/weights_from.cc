#include "apps/weights_from.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "apps/kept_copies.h"
#include "apps/weights_flags.h"
#include "cli/human_size.h"
#include "cli/phased_progress.h"
#include "hub/hub_names.h"
#include "weights/mirror.h"

namespace pelton::apps {

using cli::Flag;

std::vector<Flag> weights_from_flags() {
  std::vector<Flag> flags = {
      {.name = "--weights-from",
       .value = "URL",
       .help =
           "fetch models from there, each below its name: http(s) of pelton weights serve or "
           "of a web server, or s3://bucket/prefix; may be given again: peers first, the origin "
           "last",
       .many = true,
       .may_be_empty = false}};
  for (Flag& flag : weights_source_flags()) {
    if (flag.only_with.empty()) flag.only_with = {{"--weights-from"}};
    flags.push_back(std::move(flag));
  }
  return flags;
}

Result<std::unique_ptr<WeightsFrom>> WeightsFrom::open(const cli::Arguments& arguments,
                                                       const base::Clock& clock, base::Log& log) {
  if (!arguments.has("--weights-from")) return std::unique_ptr<WeightsFrom>();
  std::unique_ptr<WeightsFrom> made(new WeightsFrom(clock, log));
  if (arguments.text("--weights-cache") != "none") made->cache_ = arguments.text("--weights-cache");
  if (made->cache_.empty() && arguments.has("--weights-share-port")) {
    return Error{ErrorCode::kInvalidArgument,
                 "--weights-share-port gives on what is kept: it wants --weights-cache DIR",
                 "weights-share-port"};
  }
  Result<weights::FetchOptions> options =
      weights_fetch_options(arguments, arguments.list("--weights-from"), clock, log);
  if (!options.ok()) {
    Error error = options.error();
    if (error.field == "URL") error.field = "weights-from";
    return error;
  }
  made->options_ = *std::move(options);
  TRY_ASSIGN(made->share_, open_weights_share(arguments, made->options_, clock, log));
  return made;
}

Result<WeightsFrom::Fetched> WeightsFrom::fetch(const std::string& model,
                                                const std::function<bool()>& stopped) {
  Fetched fetched{.folder = model};
  std::error_code ignored;
  if (std::filesystem::exists(model, ignored)) return fetched;
  if (!hub::check_file_path(model).ok()) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{} is no folder, and no name of a model at --weights-from", hub::shown(model)),
        "MODEL"};
  }
  weights::MirrorOptions options{.fetch = options_};
  for (weights::Place& peer : options.fetch.peers) peer = place_below(peer, model);
  options.fetch.origin = place_below(options.fetch.origin, model);
  options.share = share_.get();
  options.name = copy_name(model);
  std::string parent = cache_;
  if (cache_.empty()) {
    TRY_ASSIGN(fetched.temporary, weights::TemporaryCopy::make());
    parent = fetched.temporary->folder();
  }
  options.folder = parent + "/" + options.name;
  options.below_digest = options.durable = !cache_.empty();
  log_.info(fmt::format("{}: fetching weights from {}", model, options.fetch.origin.text));
  cli::PhasedProgress progress(clock_, [this](const std::string& line) { log_.info(line); });
  Result<weights::MirrorReport> report =
      weights::mirror(options, clock_, [&](const weights::MirrorProgress& now) {
        const std::string_view what = weights_phase(now);
        if (!what.empty()) progress.update(what, now.done, now.total);
        return !stopped();
      });
  progress.clear();
  if (!report.ok()) {
    Error error = report.error();
    if (error.field == "DEST") error.field = "weights-cache";
    return error;
  }
  log_.info(fmt::format("{}: {}", model, weights_report(*report)));
  fetched.folder = report->folder;
  fetched.phases = {{"manifest", report->manifest_seconds}, {"fetch", report->fetch_seconds}};
  return fetched;
}

}  // namespace pelton::apps
