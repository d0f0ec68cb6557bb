#include "weights/fetch.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "weights/place_answers.h"

namespace pelton::weights {
namespace {

using State = ChunkFolder::State;

constexpr int kRedirectsMax = 5;
constexpr int kAbsentMax = 16;
constexpr int kPeerFailuresMax = 3;
constexpr int kCheckersMax = 4;
constexpr std::chrono::milliseconds kWait{10};
constexpr std::chrono::milliseconds kPollEach{150};
constexpr std::chrono::milliseconds kPollFailedEach{1'000};
constexpr std::chrono::milliseconds kPlanEach{100};
constexpr std::chrono::milliseconds kFirstAnswers{1'000};

int64_t ns(std::chrono::milliseconds time) {
  return std::chrono::nanoseconds(time).count();
}

int checkers() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kCheckersMax);
}

// A peer is not worth many tries: others have the same.
hub::RetryOptions peer_retry(hub::RetryOptions options) {
  options.tries_max = std::min(options.tries_max, kPeerFailuresMax);
  options.on_retry = {};
  return options;
}

}  // namespace

struct Fetch::Poll final : hub::TransferSink {
  size_t source = 0;
  int transfer = 0;
  hub::ResponseHead head;
  std::string body;

  bool on_head(const hub::ResponseHead& one) override {
    head = one;
    return true;
  }
  bool on_body(std::string_view bytes) override {
    body += bytes;
    return body.size() <= Have::kBytesMax;
  }
};

Fetch::Fetch(ChunkFolder& folder, const FetchOptions& options, const base::Clock& clock)
    : folder_(folder),
      options_(options),
      clock_(clock),
      transfers_({.connections = 4 * options.connections,
                  .connect_time_max = std::chrono::seconds(10),
                  .stall_time_max = std::chrono::seconds(15),
                  .least_bytes_per_s = 1'024}) {
  const size_t count = folder.chunks().size();
  for (const Place& peer : options.peers) {
    sources_.push_back(std::make_unique<Source>(peer, false, count, peer_retry(options.retry)));
  }
  sources_.push_back(std::make_unique<Source>(options.origin, true, count, options.retry));
  busy_.resize(count);
  was_wrong_.resize(count);
  order_.resize(count);
  std::iota(order_.begin(), order_.end(), 0);
  for (size_t i = 0; i < count; ++i) {
    const int chunk = static_cast<int>(i);
    bits_.push_back(std::stoull(folder.digest_of(chunk).substr(0, 16), nullptr, 16));
    if (folder.state(chunk) == State::kThere) {
      report_.bytes_kept += folder.chunks()[i].bytes;
    } else {
      ++missing_;
    }
  }
  bytes_there_ = report_.bytes_kept;
  if (!options.id.empty()) {
    std::stable_sort(order_.begin(), order_.end(), [this](int a, int b) {
      return claim(bits_[static_cast<size_t>(a)], options_.id) >
             claim(bits_[static_cast<size_t>(b)], options_.id);
    });
  }
  checker_ = std::make_unique<ChunkChecker>(folder, checkers());
}

Fetch::~Fetch() {
  for (const Download& download : downloads_) {
    folder_.set_state(download.chunk(), State::kMissing);
  }
}

Result<void> Fetch::run(Progress progress) {
  begun_ns_ = active_ns_ = clock_.now_ns();
  const int64_t total = folder_.manifest().bytes();
  while (missing_ > 0) {
    if (!progress(bytes_there_, total)) return Error{ErrorCode::kCancelled, "interrupted"};
    TRY(step());
  }
  progress(bytes_there_, total);
  return {};
}

Result<void> Fetch::step() {
  TRY(take_checked());
  if (missing_ == 0) return {};
  poll_sources();
  if (knows_sources()) {
    try_waiting();
    look_at_rates();
    start_downloads();
    TRY(check_hope());
  }
  for (const hub::TransferEnd& end : transfers_.wait(kWait)) ended(end);
  return {};
}

Result<void> Fetch::take_checked() {
  for (ChunkChecker::Done& done : checker_->take_done()) {
    const auto chunk = static_cast<size_t>(done.chunk);
    Source& source = *sources_[static_cast<size_t>(done.source)];
    const int64_t bytes = folder_.chunks()[chunk].bytes;
    busy_[chunk] = false;
    if (done.right) {
      TRY(done.written);
      --missing_;
      bytes_there_ += bytes;
      source.bytes += bytes;
      (source.origin ? report_.bytes_from_origin : report_.bytes_from_peers) += bytes;
      continue;
    }
    missing_again(done.chunk);
    const std::string what =
        fmt::format("sent other bytes than the manifest has for {}", folder_.text_of(done.chunk));
    if (!source.origin) {
      drop(source, what);
    } else if (was_wrong_[chunk]) {
      return Error{ErrorCode::kBadCheckpoint,
                   fmt::format("{}: {}, twice", source.place.text, what)};
    } else {
      was_wrong_[chunk] = true;
    }
  }
  return {};
}

// All have been heard of, or have had their time; and others of this moment have had theirs to
// come.
bool Fetch::knows_sources() const {
  const int64_t waited = clock_.now_ns() - begun_ns_;
  if (!options_.id.empty() && origin().kind == Source::Kind::kNode &&
      waited < ns(options_.gather)) {
    return false;
  }
  return waited > ns(kFirstAnswers) ||
         std::all_of(sources_.begin(), sources_.end(), [](const auto& source) {
           return source->kind != Source::Kind::kUnknown || !source->dropped.empty() ||
                  source->poll_failures > 0;
         });
}

void Fetch::poll_sources() {
  const int64_t now = clock_.now_ns();
  for (size_t i = 0; i < sources_.size(); ++i) {
    Source& source = *sources_[i];
    if (source.place.s3 && source.kind == Source::Kind::kUnknown) source.offer_all();
    if (source.polling || !source.dropped.empty() || source.kind == Source::Kind::kFiles ||
        now < source.poll_at_ns) {
      continue;
    }
    Poll& poll = polls_.emplace_back();
    poll.source = i;
    hub::TransferRequest request =
        request_to(source.place, "have", {}, options_.access, folder_.digest(), 0);
    if (options_.share_port > 0) {
      request.headers.push_back(fmt::format("x-pelton-share-port: {}", options_.share_port));
    }
    source.polling = true;
    poll.transfer = transfers_.start(request, poll);
  }
}

void Fetch::poll_ended(Poll& poll, const hub::TransferEnd& end) {
  Source& source = *sources_[poll.source];
  source.polling = false;
  const int64_t now = clock_.now_ns();
  source.poll_at_ns = now + ns(kPollEach);
  const bool answered = end.how == hub::TransferEnd::How::kComplete;
  const int status = poll.head.status;
  if (answered && status == 200) {
    const Result<Have> have = parse_have(poll.body, folder_.chunks().size());
    if (have.ok()) return heard(source, *have);
    if (have.error().field != "text") return refuse(source, have.error().message);
  }
  const bool is_final = answered && status != 0 && !hub::worth_a_retry(status);
  if (is_final && source.kind == Source::Kind::kUnknown && !source.place.derived_key) {
    return source.offer_all();  // a web server, which knows nothing of chunks
  }
  const std::string why = answered ? fmt::format("answers {}", status) : end.message;
  source.poll_at_ns = now + ns(kPollFailedEach);
  ++source.poll_failures;
  if (source.origin && source.kind == Source::Kind::kUnknown) {
    if (!source.retry.again(poll.head, source.place.text + ": " + why, now)) refuse(source, why);
    source.poll_at_ns = source.retry.not_before_ns();
  } else if (source.place.derived_key && source.poll_failures > kPeerFailuresMax) {
    drop(source, why);
  }
}

// drop(), also of the origin.
void Fetch::refuse(Source& source, const std::string& why) {
  if (source.origin) {
    origin_error_ = {ErrorCode::kUnavailable, fmt::format("{}: {}", source.place.text, why), ""};
  }
  drop(source, why);
}

void Fetch::heard(Source& source, const Have& have) {
  if (!options_.id.empty() && have.id == options_.id) {
    source.dropped = "it is this very process";
    return;
  }
  if (have.manifest != folder_.digest()) return refuse(source, "has another version of the model");
  const bool is_double =
      !source.origin && std::any_of(sources_.begin(), sources_.end(), [&](const auto& other) {
        return other.get() != &source && other->id == have.id && other->dropped.empty();
      });
  if (is_double) {
    source.dropped = "is named twice";
    return;
  }
  source.update(have, folder_.manifest().bytes(), clock_.now_ns());
  if (source.origin) add_peers(have.peers);
}

void Fetch::add_peers(const std::vector<std::string>& addresses) {
  for (const std::string& address : addresses) {
    Place place{.text = "http://" + address, .url = {}, .s3 = false, .derived_key = true};
    place.url = place.text + "/" + folder_.digest();
    const bool known = std::any_of(sources_.begin(), sources_.end(), [&](const auto& source) {
      return source->place.text == place.text || source->place.url == place.url;
    });
    if (known || sources_.size() > Have::kPeersMax) continue;
    sources_.push_back(std::make_unique<Source>(std::move(place), false, folder_.chunks().size(),
                                                peer_retry(options_.retry)));
  }
}

bool Fetch::is_missing(int chunk) const {
  return !busy_[static_cast<size_t>(chunk)] && folder_.state(chunk) == State::kMissing;
}

// Whether this node is to fetch it from the origin now: no peer has it, and none that gets on is to
// fetch it for both.
bool Fetch::is_origins(int chunk, int64_t now_ns) const {
  const auto index = static_cast<size_t>(chunk);
  const uint64_t own = options_.id.empty() ? 0 : claim(bits_[index], options_.id);
  for (const auto& source : sources_) {
    if (source->origin || !source->dropped.empty()) continue;
    const bool is_too_slow = are_peers_slow_ && source->has_all();
    if (source->there[index] && source->poll_failures == 0 && !is_too_slow) return false;
    if (options_.id.empty() || has_waited_ || !source->cooperates(now_ns, ns(options_.patience)))
      continue;
    if (source->coming[index] || claim(bits_[index], source->id) > own) return false;
  }
  return true;
}

// To nodes that are waited for bytes come, though no chunk is whole yet.
bool Fetch::others_receive(int64_t now_ns) const {
  return std::any_of(sources_.begin(), sources_.end(), [&](const auto& source) {
    return source->cooperates(now_ns, ns(options_.patience)) && source->said_ns > 0 &&
           now_ns - source->said_ns < ns(options_.patience);
  });
}

int Fetch::origin_connections(int64_t now_ns) const {
  if (options_.id.empty() || has_waited_) return options_.connections;
  const auto others = std::count_if(sources_.begin(), sources_.end(), [&](const auto& source) {
    return source->cooperates(now_ns, ns(options_.patience));
  });
  return std::max(options_.connections / (1 + static_cast<int>(others)), 1);
}

void Fetch::plan() {
  const int64_t now = clock_.now_ns();
  if (now < plan_at_ns_) return;
  plan_at_ns_ = now + ns(kPlanEach);
  constexpr int kMostPatience = 12;  // whatever they say
  const int64_t idle = now - active_ns_;
  has_waited_ = has_waited_ || idle > kMostPatience * ns(options_.patience) ||
                (idle > ns(options_.patience) && !others_receive(now));
  ready_.clear();
  for (auto chunk = order_.rbegin(); chunk != order_.rend(); ++chunk) {
    if (is_missing(*chunk) && is_origins(*chunk, now)) ready_.push_back(*chunk);
  }
}

void Fetch::start_downloads() {
  plan();
  const int most = 2 * options_.connections;
  const int checking = options_.connections + checkers();  // what may wait to be hashed
  bool has_more = true;
  while (has_more && static_cast<int>(downloads_.size()) < most && checker_->pending() < checking) {
    has_more = start_from_peer() || start_from_origin();
  }
  if (!downloads_.empty() || checker_->pending() > 0) active_ns_ = clock_.now_ns();
  const bool is_endgame = !has_more && ready_.empty();
  if (is_endgame && origin().running < origin_connections(clock_.now_ns())) pass_over_slow();
}

// Those that fetch themselves have no more to give than they get: only whole ones are held against.
void Fetch::look_at_rates() {
  const int64_t now = clock_.now_ns();
  int64_t received = 0;
  int64_t all = 0;
  bool is_asked = false;
  for (size_t i = 0; i < sources_.size(); ++i) {
    Source& source = *sources_[i];
    all += source.received;
    if (source.origin) continue;
    received += source.received;
    const bool rests = source.running == 0 || now < source.retry.not_before_ns();
    is_asked = is_asked || (source.dropped.empty() && source.has_all());
    if (rests || source.received > source.heard) {
      source.heard = source.received;
      source.heard_ns = now;
    } else if (now - source.heard_ns > ns(options_.patience)) {
      give_up_silent(i);
    }
  }
  folder_.set_received(all);
  if (!is_asked) rate_since_ns_ = 0;
  if (!is_asked || rate_since_ns_ == 0) {
    rate_since_ns_ = is_asked ? now : 0;
    rate_received_ = received;
    return;
  }
  const int64_t time = now - rate_since_ns_;
  if (time < ns(options_.overdue)) return;
  const double rate =
      static_cast<double>(received - rate_received_) / (static_cast<double>(time) * 1e-9);
  const bool was_slow = are_peers_slow_;
  are_peers_slow_ = rate < static_cast<double>(options_.least_from_peers);
  rate_since_ns_ = now;
  rate_received_ = received;
  if (are_peers_slow_ == was_slow) return;
  plan_at_ns_ = 0;
  if (are_peers_slow_ && options_.say) {
    options_.say(fmt::format(
        "peers bring {:.1f} MiB a second together; the origin is asked besides", rate / (1 << 20)));
  }
}

// It has been asked and sends nothing. Again later, as often as a peer may fail.
void Fetch::give_up_silent(size_t source) {
  Source& silent = *sources_[source];
  for (auto download = downloads_.begin(); download != downloads_.end();) {
    const auto one = download++;
    if (one->source() == static_cast<int>(source)) give_back(one);
  }
  const int64_t now = clock_.now_ns();
  silent.heard_ns = now;
  if (!silent.retry.again({}, silent.place.text + ": sends nothing", now)) {
    drop(silent, "sends nothing, again and again");
  }
}

// In the endgame: nothing else is left to fetch. Its bytes so far are lost: of two sources' bytes
// in one chunk nobody could say whose were wrong.
void Fetch::pass_over_slow() {
  const int64_t now = clock_.now_ns();
  for (auto download = downloads_.begin(); download != downloads_.end();) {
    const auto one = download++;
    Source& source = *sources_[static_cast<size_t>(one->source())];
    const bool is_late = now - one->begun_ns() > ns(options_.overdue) &&
                         one->seconds_left(now) > static_cast<double>(ns(options_.overdue)) * 1e-9;
    const auto index = static_cast<size_t>(one->chunk());
    const bool is_elsewhere = std::any_of(sources_.begin(), sources_.end(), [&](const auto& other) {
      return other.get() != &source && other->may_be_asked(now) && other->poll_failures == 0 &&
             (other->origin || other->there[index]);
    });
    if (source.origin || !is_late || !is_elsewhere) continue;
    source.there[index] = false;
    source.passed_over[index] = true;
    give_back(one);
  }
}

bool Fetch::start_from_peer() {
  const int64_t now = clock_.now_ns();
  int running = 0;
  for (const auto& source : sources_) running += source->origin ? 0 : source->running;
  if (running >= options_.connections) return false;
  Source* best = nullptr;
  size_t index = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    Source& source = *sources_[i];
    if (source.origin || !source.may_be_asked(now)) continue;
    while (!source.offers.empty() && !is_missing(source.offers.front())) {
      source.offers.pop_front();
    }
    if (source.offers.empty() || (best != nullptr && best->running <= source.running)) continue;
    best = &source;
    index = i;
  }
  if (best == nullptr) return false;
  const int chunk = best->offers.front();
  best->offers.pop_front();
  begin(chunk, index);
  return true;
}

bool Fetch::start_from_origin() {
  const int64_t now = clock_.now_ns();
  const Source& source = origin();
  if (source.running >= origin_connections(now) || !source.may_be_asked(now)) return false;
  while (!ready_.empty() && !is_missing(ready_.back())) ready_.pop_back();
  if (ready_.empty()) return false;
  const int chunk = ready_.back();
  ready_.pop_back();
  folder_.set_state(chunk, State::kComing);
  begin(chunk, options_.peers.size());
  return true;
}

void Fetch::begin(int chunk, size_t source) {
  busy_[static_cast<size_t>(chunk)] = true;
  ++sources_[source]->running;
  downloads_.emplace_back(folder_, chunk, static_cast<int>(source),
                          sources_[source]->kind == Source::Kind::kNode, clock_.now_ns(),
                          sources_[source]->received);
  start_transfer(downloads_.back());
}

hub::TransferRequest Fetch::request_of(const Download& download) const {
  if (download.led_to) return *download.led_to;
  const Source& source = *sources_[static_cast<size_t>(download.source())];
  return request_to(source.place, download.path(), {}, options_.access, folder_.digest(),
                    clock_.unix_ms() / 1000);
}

void Fetch::start_transfer(Download& download) {
  download.begin_try();
  hub::TransferRequest request = request_of(download);
  request.range = download.range();
  download.transfer = transfers_.start(request, download);
}

void Fetch::try_waiting() {
  const int64_t now = clock_.now_ns();
  for (auto download = downloads_.begin(); download != downloads_.end();) {
    const auto one = download++;
    if (one->transfer != 0) continue;
    const Source& source = *sources_[static_cast<size_t>(one->source())];
    if (!source.dropped.empty()) {
      give_back(one);
    } else if (now >= source.retry.not_before_ns()) {
      start_transfer(*one);
    }
  }
}

// Peers whose offer of it was passed over meanwhile offer it once more.
void Fetch::missing_again(int chunk) {
  const auto index = static_cast<size_t>(chunk);
  busy_[index] = false;
  folder_.set_state(chunk, State::kMissing);
  for (const auto& source : sources_) {
    if (!source->origin && source->there[index]) source->offers.push_front(chunk);
  }
  plan_at_ns_ = 0;
}

void Fetch::give_back(std::list<Download>::iterator download) {
  missing_again(download->chunk());
  --sources_[static_cast<size_t>(download->source())]->running;
  if (download->transfer != 0) transfers_.cancel(download->transfer);
  downloads_.erase(download);
}

void Fetch::drop(Source& source, const std::string& reason) {
  if (!source.dropped.empty()) return;
  // Some errors begin with its name already.
  const std::string prefix = source.place.text + ": ";
  const std::string why = reason.starts_with(prefix) ? reason.substr(prefix.size()) : reason;
  source.dropped = why;
  report_.dropped.push_back(fmt::format("{}: {}", source.place.text, why));
  if (options_.say) {
    options_.say(fmt::format("{} {}; it is asked for nothing more", source.place.text, why));
  }
  plan_at_ns_ = 0;
  if (source.origin) offer_slow_again();
}

// Without the origin a slow peer is better than none.
void Fetch::offer_slow_again() {
  for (const auto& source : sources_) {
    for (size_t i = 0; i < source->passed_over.size(); ++i) {
      if (!source->passed_over[i]) continue;
      source->passed_over[i] = false;
      source->there[i] = true;
      source->offers.push_back(static_cast<int>(i));
    }
  }
}

void Fetch::ended(const hub::TransferEnd& end) {
  for (auto poll = polls_.begin(); poll != polls_.end(); ++poll) {
    if (poll->transfer != end.id) continue;
    poll_ended(*poll, end);
    polls_.erase(poll);
    return;
  }
  for (auto download = downloads_.begin(); download != downloads_.end(); ++download) {
    if (download->transfer == end.id) return download_ended(download, end);
  }
}

void Fetch::download_ended(std::list<Download>::iterator download, const hub::TransferEnd& end) {
  download->transfer = 0;
  Source& source = *sources_[static_cast<size_t>(download->source())];
  const int status = download->head().status;
  if (download->has_advanced()) source.retry.progress();
  const bool is_answer = download->fault().empty() && (status == 200 || status == 206);
  if (is_answer && end.how != hub::TransferEnd::How::kFailed && download->complete()) {
    --source.running;
    checker_->submit({.chunk = download->chunk(),
                      .source = download->source(),
                      .bytes = download->take_bytes()});
    downloads_.erase(download);
    return;
  }
  if (!download->fault().empty()) {
    refuse(source, download->fault());
  } else if (is_redirect(status) && download->redirects < kRedirectsMax) {
    if (lead(*download)) return;
  } else if (status == 404 && !source.origin && ++source.absent < kAbsentMax) {
    source.there[static_cast<size_t>(download->chunk())] = false;
    give_back(download);
    return;
  } else if (is_answer || status == 0 || hub::worth_a_retry(status)) {
    const bool is_cut = is_answer || status == 0;
    failed(*download, !is_cut               ? fmt::format("answers {}", status)
                      : end.message.empty() ? "the connection was cut"
                                            : end.message);
  } else {
    const Error error = refusal(source.place, download->head());
    if (source.origin) origin_error_ = error;
    drop(source, error.message);
  }
  if (!source.dropped.empty()) give_back(download);
}

// On to where a redirect leads; false: that may not be, and the source is dropped.
bool Fetch::lead(Download& download) {
  Source& source = *sources_[static_cast<size_t>(download.source())];
  const Result<hub::TransferRequest> led =
      redirected(source.place, request_of(download), download.head());
  if (led.ok()) {
    download.led_to = *led;
    ++download.redirects;
    start_transfer(download);
    return true;
  }
  if (source.origin) origin_error_ = led.error();
  drop(source, led.error().message);
  return false;
}

// It waits, with what has come; try_waiting() goes on.
void Fetch::failed(Download& download, const std::string& why) {
  Source& source = *sources_[static_cast<size_t>(download.source())];
  download.led_to.reset();
  download.redirects = 0;
  // Connections that fall together have failed once.
  if (clock_.now_ns() < source.retry.not_before_ns()) return;
  const std::string text = fmt::format("{}: {}", source.place.text, why);
  if (source.retry.again(download.head(), text, clock_.now_ns())) return;
  refuse(source, fmt::format("{}, again and again", why));
}

// Whether anything can still come.
Result<void> Fetch::check_hope() const {
  if (origin_error_.message.empty() || !downloads_.empty() || checker_->pending() > 0) return {};
  const int64_t now = clock_.now_ns();
  for (const auto& source : sources_) {
    if (source->origin || !source->dropped.empty()) continue;
    if (!source->offers.empty() || source->cooperates(now, ns(options_.patience))) return {};
  }
  return origin_error_;
}

void Fetch::linger(std::chrono::milliseconds most, base::FunctionRef<bool()> go_on) {
  const int64_t end_ns = clock_.now_ns() + ns(most);
  while (clock_.now_ns() < end_ns && go_on()) {
    poll_sources();
    for (const hub::TransferEnd& end : transfers_.wait(kWait)) {
      ended(end);
    }
    const bool anybody = std::any_of(sources_.begin(), sources_.end(), [&](const auto& source) {
      const bool is_new = source->kind == Source::Kind::kUnknown && source->poll_failures == 0;
      return !source->origin && source->dropped.empty() &&
             (is_new || source->cooperates(clock_.now_ns(), ns(options_.patience)));
    });
    if (!anybody) return;
  }
}

FetchReport Fetch::report() const {
  return report_;
}

}  // namespace pelton::weights
