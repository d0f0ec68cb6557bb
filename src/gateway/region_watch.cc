#include "gateway/region_watch.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/authenticated_cipher.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

constexpr std::chrono::milliseconds kTurn{500};
constexpr std::chrono::milliseconds kConnectTime{1'000};
constexpr std::chrono::milliseconds kWholeTime{2'000};
constexpr size_t kBytesMax = size_t{8} << 20;
constexpr double kNewestShare = 0.2;  // of the newest round trip in the average

bool is_same(const RegionConfig& one, const RegionConfig& other) {
  return one.name == other.name && one.host == other.host && one.port == other.port;
}

}  // namespace

RegionWatch::RegionWatch(Fleet& fleet, const base::Clock& clock) : fleet_(fleet), clock_(clock) {}

RegionWatch::~RegionWatch() = default;

void RegionWatch::set(const RegionsConfig& regions) {
  std::lock_guard lock(mutex_);
  secret_ = regions.secret;
  std::vector<std::shared_ptr<Peer>> wanted;
  for (const RegionConfig& region : regions.others) {
    const auto known = std::ranges::find_if(
        peers_, [&](const auto& peer) { return is_same(peer->config, region); });
    wanted.push_back(known == peers_.end() ? std::make_shared<Peer>() : *known);
    wanted.back()->config = region;
  }
  peers_ = std::move(wanted);
  if (peers_.empty() || ticker_ != nullptr) return;
  client_ = std::make_unique<net::HttpClient>(net::HttpClient::Options{.threads = 1});
  ticker_ = std::make_unique<base::PeriodicThread>(
      base::PeriodicThread::Options{.name = "pelton-regions", .interval = kTurn},
      [this] { turn(); });
}

void RegionWatch::turn() {
  std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Peer>& peer : peers_) {
    if (!peer->asking) ask(peer);
  }
}

void RegionWatch::ask(const std::shared_ptr<Peer>& peer) {
  peer->asking = true;
  const auto answer = std::make_shared<Answer>();
  answer->nonce = base::random_hex(16);
  answer->secret = secret_;
  answer->sent_ns = clock_.now_ns();
  net::HttpCall call{
      .method = "GET",
      .host = peer->config.host,
      .port = peer->config.port,
      .tls = peer->config.tls,
      .trust = peer->config.trust,
      .target = fmt::format("{}?nonce={}&book={}&since={}", kRegionSummaryPath, answer->nonce,
                            net::percent_encode(peer->view.book()), peer->view.version()),
      .headers = {},
      .body = {},
      .repeatable = true,
      .connect_time_max = kConnectTime,
      .whole_time_max = kWholeTime,
      .body_bytes_max = kBytesMax};
  call.headers.add("Authorization", "Bearer " + peer->config.api_key);
  net::HttpCallEvents events;
  events.on_start = [this, answer] {
    answer->sent_ns = clock_.now_ns();
    answer->dispatched = fleet_.dispatched();
  };
  events.on_head = [this, answer](int status, const net::HttpHeaders& headers) {
    answer->status = status;
    answer->mac = headers.get(kRegionMacHeader);
    answer->begun_ns = clock_.now_ns();
  };
  events.on_body = [answer](std::string_view bytes) { answer->body += bytes; };
  events.on_done = [this, peer, answer](const Result<void>& result) {
    on_answer(peer, *answer, result);
  };
  client_->start(std::move(call), std::move(events));
}

void RegionWatch::on_answer(const std::shared_ptr<Peer>& peer, const Answer& answer,
                            const Result<void>& result) {
  std::string trouble;
  std::string name;
  RegionModels models;
  double round_trip_s = 0;
  double egress_s_per_mb = 0;
  {
    std::lock_guard lock(mutex_);
    peer->asking = false;
    name = peer->config.name;
    if (!result.ok()) {
      trouble = result.error().message;
    } else if (answer.status != 200) {
      trouble = fmt::format("{} answers {}{}", kRegionSummaryPath, answer.status,
                            answer.status == 401 || answer.status == 404
                                ? ": does its keys_file have this key, with 'gateway'?"
                                : "");
    } else if (answer.mac != region_mac(answer.secret, answer.nonce, answer.body)) {
      trouble = "its summary is signed with another secret ('region_secret_file')";
    } else if (const Result<void> applied = peer->view.apply(answer.body, name); !applied.ok()) {
      trouble = applied.error().message;
      peer->view = {};
    } else {
      const double seconds = static_cast<double>(answer.begun_ns - answer.sent_ns) * 1e-9;
      peer->round_trip_s = peer->round_trip_s == 0
                               ? seconds
                               : peer->round_trip_s + kNewestShare * (seconds - peer->round_trip_s);
      peer->heard_ns = clock_.now_ns();
      models = peer->view.models();
      round_trip_s = peer->round_trip_s;
      egress_s_per_mb = peer->config.egress_s_per_mb;
    }
    peer->trouble = trouble;
  }
  if (!trouble.empty()) return fleet_.note_region_lost(name, trouble);
  fleet_.note_region({.region = name,
                      .models = models,
                      .round_trip_s = round_trip_s,
                      .egress_s_per_mb = egress_s_per_mb,
                      .dispatched = answer.dispatched});
}

std::vector<RegionWatch::Row> RegionWatch::rows() const {
  std::lock_guard lock(mutex_);
  std::vector<Row> rows;
  for (const std::shared_ptr<Peer>& peer : peers_) {
    rows.push_back(
        {.name = peer->config.name,
         .gateway = net::format_host_port(peer->config.host, peer->config.port),
         .egress_per_gb = peer->config.egress_per_gb,
         .round_trip_s = peer->round_trip_s,
         .age_ms = peer->heard_ns == 0 ? -1 : (clock_.now_ns() - peer->heard_ns) / 1'000'000,
         .trouble = peer->trouble,
         .models = peer->view.models()});
  }
  return rows;
}

}  // namespace pelton::gateway
