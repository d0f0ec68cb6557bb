// The part of gateway::Gateway that is between regions: what it says of its own models to other
// regions' gateways, for whom these ask, and what operators see of them.
#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "gateway/client_headers.h"
#include "gateway/gateway.h"
#include "gateway/gateway_errors.h"
#include "net/json_response.h"
#include "net/url.h"

namespace pelton::gateway {
namespace {

constexpr size_t kNonceMax = 128;

bool is_plain_name(std::string_view name) {
  return name.size() <= 256 &&
         std::ranges::all_of(name, [](char c) { return c > ' ' && c <= '~'; });
}

// The mean of those that take requests: what one more finds there.
struct Mean {
  int count = 0;
  int64_t slots = 0;
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t waiting_tokens = 0;
  int64_t context_tokens = 0;
  double wait_s = 0;
  double kv_used = 0;
  cluster::StepCosts costs{.fixed_s = 0, .prefill_token_s = 0, .row_s = 0, .context_token_s = 0};

  void add(const Fleet::Row& row) {
    const cluster::WorkerLoad& load = row.load;
    wait_s = count == 0 ? load.wait_s : std::min(wait_s, load.wait_s);
    ++count;
    slots += std::max(row.record.slots, 1);
    running += load.running + row.uncounted;
    waiting += load.waiting;
    waiting_tokens += load.waiting_tokens;
    context_tokens += load.context_tokens;
    kv_used += load.kv_used;
    costs.fixed_s += load.costs.fixed_s;
    costs.prefill_token_s += load.costs.prefill_token_s;
    costs.row_s += load.costs.row_s;
    costs.context_token_s += load.costs.context_token_s;
  }
  RegionModel model() const {
    if (count == 0) return {};
    const double by = count;
    return {.ready = count,
            .slots = static_cast<int>(slots / count),
            .running = static_cast<int>(running / count),
            .waiting = static_cast<int>((waiting + count - 1) / count),
            .waiting_tokens = waiting_tokens / count,
            .context_tokens = context_tokens / count,
            .wait_s = wait_s,
            .kv_used = std::clamp(kv_used / by, 0.0, 1.0),
            .costs = {.fixed_s = costs.fixed_s / by,
                      .prefill_token_s = costs.prefill_token_s / by,
                      .row_s = costs.row_s / by,
                      .context_token_s = costs.context_token_s / by}};
  }
};

bool takes_requests(const Fleet::Row& row) {
  return row.kind != WorkerKind::kRegion && row.state == cluster::WorkerState::kReady &&
         cluster::decodes(row.role) && !row.next_role;
}

RegionModels own_models(const GatewayConfig& config, const std::vector<Fleet::Row>& rows) {
  RegionModels models;
  for (const PoolConfig& pool : config.pools) {
    for (const std::string& model : pool.models) {
      Mean mean;
      for (const Fleet::Row& row : rows) {
        const auto& its = row.record.models;
        if (row.pool != pool.name || !takes_requests(row)) continue;
        if (std::ranges::find(its, model) != its.end()) mean.add(row);
      }
      if (mean.count > 0 || !models.contains(model)) models[model] = mean.model();
    }
  }
  return models;
}

void write_ledger(base::JsonWriter& w, const RegionLedger::Rows& rows, const std::string& region) {
  w.key("tenants").begin_array();
  for (const auto& [whose, sums] : rows) {
    if (whose.first != region) continue;
    w.begin_object().key("tenant").string(whose.second).key("requests").integer(sums.requests);
    w.key("bytes_out").integer(sums.bytes_out).key("bytes_in").integer(sums.bytes_in).end_object();
  }
  w.end_array();
}

}  // namespace

std::optional<net::HttpResponse> Gateway::region_summary(const net::HttpRequest& request,
                                                         const Asker& asker) const {
  if (request.path != kRegionSummaryPath || asker.scope == nullptr || !asker.scope->is_gateway) {
    return std::nullopt;
  }
  const Config settings = config();
  const RegionsConfig& regions = settings->config.regions;
  if (regions.own.empty() || regions.secret.empty()) return std::nullopt;
  const std::string nonce = net::query_value(request.query, "nonce").value_or("");
  if (nonce.empty() || nonce.size() > kNonceMax) return std::nullopt;
  const std::string since_text = net::query_value(request.query, "since").value_or("0");
  int64_t since = 0;
  std::from_chars(since_text.data(), since_text.data() + since_text.size(), since);
  std::string body;
  {
    std::lock_guard lock(region_mutex_);
    if (region_book_ == nullptr || region_own_ != regions.own) {
      region_own_ = regions.own;
      region_book_ = std::make_unique<RegionBook>(regions.own, name_);
    }
    region_book_->set(draining_ ? RegionModels() : own_models(settings->config, fleet_.rows()));
    body = region_book_->summary(net::query_value(request.query, "book").value_or(""), since);
  }
  const std::string mac = region_mac(regions.secret, nonce, body);
  net::HttpResponse answer = net::json_response(std::move(body));
  answer.headers.add(std::string(kRegionMacHeader), mac);
  return answer;
}

Result<Gateway::ForRegion> Gateway::for_region(const net::HttpHeaders& headers, Caller& caller) {
  const Asker asker = Asker::of(caller.settings->config, *caller.principal);
  if (asker.scope == nullptr || !asker.scope->is_gateway) return ForRegion{};
  const std::string_view tenant = headers.get(kRegionTenantHeader);
  const std::string_view region = headers.get(kRegionStaysHeader);
  if (!is_plain_name(tenant) || !is_plain_name(region)) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' and '{}' are plain names", kRegionTenantHeader, kRegionStaysHeader),
        std::string(is_plain_name(tenant) ? kRegionStaysHeader : kRegionTenantHeader)};
  }
  if (!tenant.empty()) caller.principal->tenant = tenant;
  return ForRegion{.comes = true, .stays_in = std::string(region)};
}

// Only what is computed and forgotten, whose answers are read whole: files, batches and stored
// responses lie where they were made. A pool that a key is tied to is one of this gateway's.
bool Gateway::stays_here(const net::HttpRequest& request, const GatewayConfig& config,
                         const Asker& asker) {
  constexpr std::array<std::string_view, 11> kMayLeave = {
      "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/embeddings",
      "/v1/rerank",           "/v1/score",       "/v1/classify", "/v2/embed",
      "/v2/rerank",           "/classify",       "/pooling"};
  return std::ranges::find(kMayLeave, request.path) == kMayLeave.end() ||
         is_tied_to_pool(config, asker);
}

Result<std::string> Gateway::region_asked(const GatewayConfig& config, const Asker& asker,
                                          const net::HttpHeaders& headers, const ForRegion& from) {
  const std::string tied = region_of(config, asker);
  const std::string asked(from.comes ? std::string_view(from.stays_in)
                                     : headers.get(kRegionHeader));
  if (asked.empty() || asked == tied) return tied;
  const bool is_known = asked == config.regions.own || config.regions.has(asked) ||
                        std::ranges::any_of(config.pools, [&](const PoolConfig& pool) {
                          return pool.region == asked || pool.region == PoolConfig::kRegionOfWorker;
                        });
  if (tied.empty() && is_known && is_plain_name(asked)) return asked;
  return Error{ErrorCode::kInvalidArgument,
               tied.empty() ? fmt::format("'{}' names no region of this gateway", kRegionHeader)
                            : fmt::format("this key is tied to the region '{}', which '{}' may "
                                          "narrow and not change",
                                          tied, kRegionHeader),
               std::string(kRegionHeader)};
}

std::string Gateway::regions_body() const {
  const Config settings = config();
  const RegionLedger::Rows ledger = counters_.regions.rows();
  std::string body;
  base::JsonWriter w(body);
  w.begin_object().key("region").string(settings->config.regions.own).key("regions").begin_array();
  for (const RegionWatch::Row& row : region_watch_.rows()) {
    w.begin_object().key("name").string(row.name).key("gateway").string(row.gateway);
    w.key("round_trip_ms").number(row.round_trip_s * 1e3);
    w.key("said_ms_ago");
    row.age_ms < 0 ? w.null() : w.integer(row.age_ms);
    w.key("trouble");
    row.trouble.empty() ? w.null() : w.string(row.trouble);
    w.key("models").begin_array();
    for (const auto& [name, model] : row.models) {
      w.begin_object().key("model").string(name).key("ready").integer(model.ready);
      w.key("slots").integer(model.slots).key("running").integer(model.running);
      w.key("waiting").integer(model.waiting).key("kv_used").number(model.kv_used).end_object();
    }
    w.end_array();
    RegionLedger::Sums all;
    for (const auto& [whose, sums] : ledger) {
      if (whose.first != row.name) continue;
      all.requests += sums.requests;
      all.bytes_out += sums.bytes_out;
      all.bytes_in += sums.bytes_in;
    }
    w.key("requests").integer(all.requests).key("bytes_out").integer(all.bytes_out);
    w.key("bytes_in").integer(all.bytes_in);
    w.key("egress_cost").number(row.egress_per_gb * static_cast<double>(all.bytes_out) * 1e-9);
    write_ledger(w, ledger, row.name);
    w.end_object();
  }
  w.end_array().end_object();
  return body;
}

}  // namespace pelton::gateway
