#include "gateway/shadow_traffic.h"

#include <array>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <pelton/v1/inference.pb.h>

#include "base/json.h"
#include "rpc/grpc_frame.h"

namespace pelton::gateway {
namespace {

constexpr size_t kOpenMax = 64;
constexpr size_t kBytesMax = size_t{64} << 20;
constexpr size_t kBudgetsMax = 1024;
// Of the slots: from here on no copy begins, and from there on none goes on.
constexpr double kHalf = 0.5;
constexpr double kNearlyAll = 0.9;

// What makes an answer and leaves nothing behind: a stored response would be a second one.
bool is_copied(const net::HttpRequest& http) {
  constexpr std::array<std::string_view, 5> kPaths = {"/v1/chat/completions", "/v1/completions",
                                                      "/v1/messages", "/inference/v1/generate",
                                                      rpc::kGrpcGenerate};
  if (http.method != "POST") return false;
  for (const std::string_view path : kPaths) {
    if (http.path == path) return true;
  }
  return false;
}

// The same with the least priority that workers of our own know.
net::HttpRequest behind_all_others(net::HttpRequest http) {
  constexpr int kPriorityLast = 1000;
  if (http.path == rpc::kGrpcGenerate) {
    v1::GenerateRequest message;
    if (!message.ParseFromString(http.body)) return http;
    message.set_priority(kPriorityLast);
    http.body = message.SerializeAsString();
    return http;
  }
  Result<Json> json = Json::parse(http.body);
  if (!json.ok() || !json->is_object()) return http;  // its worker refuses it
  http.body = json->set("priority", kPriorityLast).dump();
  return http;
}

std::string random_secret() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace

// A client that takes everything and looks at nothing. On the loop, but for cut().
class ShadowTraffic::Sink final : public net::Exchange,
                                  public std::enable_shared_from_this<ShadowTraffic::Sink> {
 public:
  Sink(std::shared_ptr<net::WorkLoop::Queue> loop, std::function<void()> ended)
      : loop_(std::move(loop)), ended_(std::move(ended)) {}

  void send(net::HttpResponse) override { end(); }
  void start_stream(int, net::HttpHeaders) override {}
  void write(std::string_view) override {}
  void finish() override { end(); }
  size_t queued_bytes() const override { return 0; }
  void on_drained(std::function<void()>) override {}
  void on_closed(std::function<void()> closed) override { closed_ = std::move(closed); }
  bool closed() const override { return over_; }
  void post(std::function<void()> work) override { loop_->post(std::move(work)); }
  void post_after(std::chrono::milliseconds delay, std::function<void()> work) override {
    loop_->post_after(delay, std::move(work));
  }

  // Any thread.
  void cut() {
    loop_->post([self = shared_from_this()] {
      const std::function<void()> closed = self->closed_;
      self->end();
      if (closed) closed();
    });
  }

 private:
  void end() {
    if (std::exchange(over_, true)) return;
    ended_();
    // Its relay, which may be at it, is let go behind this.
    loop_->post([closed = std::exchange(closed_, nullptr)] {});
  }

  const std::shared_ptr<net::WorkLoop::Queue> loop_;
  const std::function<void()> ended_;
  std::function<void()> closed_;
  bool over_ = false;
};

ShadowTraffic::ShadowTraffic(const Options& options)
    : options_(options), secret_(random_secret()), quarantine_({.secret = secret_}) {}

ShadowTraffic::~ShadowTraffic() {
  std::lock_guard lock(mutex_);
  for (const auto& [number, copy] : open_) copy.sink->cut();
}

bool ShadowTraffic::has_room(const ShadowConfig& shadow, const Relay::Request& request) {
  {
    std::lock_guard lock(mutex_);
    if (open_.size() >= kOpenMax || bytes_ + request.http.body.size() > kBytesMax) return false;
  }
  return options_.fleet.occupancy(shadow.pool) < kHalf &&
         options_.fleet.occupancy(request.pool) < kNearlyAll;
}

bool ShadowTraffic::has_budget(const ShadowConfig& shadow, std::string_view model, int64_t tokens) {
  const std::string key = fmt::format("{}\n{}", model, shadow.pool);
  const int64_t now_ns = options_.clock.now_ns();
  std::lock_guard lock(mutex_);
  auto budget = budgets_.find(key);
  if (budget == budgets_.end()) {
    if (budgets_.size() == kBudgetsMax) return false;
    budget = budgets_.try_emplace(key, shadow.tokens_per_minute, now_ns).first;
  }
  if (budget->second.per_minute() != shadow.tokens_per_minute) {
    budget->second.change(shadow.tokens_per_minute, now_ns);
  }
  if (budget->second.wait_ns(tokens, now_ns) > 0) return false;
  budget->second.take(tokens, now_ns);
  return true;
}

void ShadowTraffic::offer(const Target& target, const Relay::Request& request) {
  const ShadowConfig& shadow = target.to;
  if (!is_copied(request.http)) return;
  if (!has_room(shadow, request)) {
    ++counts_.no_room;
    return;
  }
  if (!has_budget(shadow, request.model, request.prompt.tokens + target.output_tokens)) {
    ++counts_.no_budget;
    return;
  }
  ++counts_.sent;
  Copy copy{.pool = shadow.pool,
            .clients_pool = request.pool,
            .bytes = request.http.body.size(),
            .sink = nullptr};
  {
    std::lock_guard lock(mutex_);
    const int64_t number = ++numbers_;
    copy.sink = std::make_shared<Sink>(loop_.queue(), [this, number] { forget(number); });
    bytes_ += copy.bytes;
    open_.emplace(number, copy);
  }
  const auto shadowed = std::make_shared<Relay::Request>(Relay::Request{
      .http = request.http,
      .pool = shadow.pool,
      .model = request.model,
      .region = request.region,
      .prompt = {.tokens = request.prompt.tokens, .names = {}},
      .request_id = request.request_id + "-shadow",
      .principal = request.principal,
      .seed = request.seed,
      .created_ms = request.created_ms,
      .deadline_ns = request.deadline_ns,
      .gate = nullptr,
      .is_copy = true,
      .arm = options_.arms.find(request.model, shadow.pool, ArmTable::Traffic::kShadow)});
  // Its body is read here, and not where clients' requests wait.
  loop_.post([this, shadowed, is_foreign = target.is_foreign, sink = copy.sink] {
    if (sink->closed()) return;
    if (!is_foreign) shadowed->http = behind_all_others(shadowed->http);
    Relay::start(std::move(*shadowed), sink,
                 {.fleet = options_.fleet,
                  .client = options_.client,
                  .clock = options_.clock,
                  .log = options_.log,
                  .counters = relayed_,
                  .quarantine = quarantine_,
                  .retry_budget = retry_budget_,
                  .homes = homes_,
                  .running = homes_,
                  .gateway = options_.gateway,
                  .retries_max = 0,
                  .resume_budget_ns = 0});
  });
}

void ShadowTraffic::yield() {
  std::vector<std::shared_ptr<Sink>> cut;
  {
    std::lock_guard lock(mutex_);
    if (open_.empty()) return;
    std::map<std::string_view, bool> full;
    const auto is_full = [&](const std::string& pool) {
      const auto known = full.find(pool);
      if (known != full.end()) return known->second;
      return full.emplace(pool, options_.fleet.occupancy(pool) >= kNearlyAll).first->second;
    };
    for (auto& [number, copy] : open_) {
      if (copy.is_cut || !(is_full(copy.pool) || is_full(copy.clients_pool))) continue;
      copy.is_cut = true;
      cut.push_back(copy.sink);
    }
  }
  for (const std::shared_ptr<Sink>& sink : cut) {
    ++counts_.cut;
    sink->cut();
  }
}

void ShadowTraffic::forget(int64_t number) {
  std::lock_guard lock(mutex_);
  const auto found = open_.find(number);
  if (found == open_.end()) return;
  bytes_ -= found->second.bytes;
  open_.erase(found);
}

}  // namespace pelton::gateway
