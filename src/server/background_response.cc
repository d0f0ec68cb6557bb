#include "server/background_response.h"

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace pelton::server {
namespace {

// What is written to a follower at a time, and the backlog above which it waits for its reader.
constexpr size_t kWrittenTogether = size_t{256} << 10;
constexpr size_t kBacklogBytesMax = size_t{1} << 20;

// The response object that an event of the stream's end brings.
std::string body_of(std::string_view event) {
  const size_t data = event.rfind("data: ");
  if (data == std::string_view::npos) return {};
  const Result<Json> json = Json::parse(event.substr(data + 6));
  const Json* response = json.ok() ? json->find("response") : nullptr;
  return response == nullptr ? std::string() : response->dump();
}

// As it began, and failed for the reason that `error` ({"error":{…}}) gives.
std::string failed_body(const std::string& begun, const std::string& error) {
  Result<Json> body = Json::parse(begun);
  const Result<Json> why = Json::parse(error);
  if (!body.ok() || !body->is_object()) return begun;
  body->set("status", Json("failed"));
  const Json* reason = why.ok() ? why->find("error") : nullptr;
  const std::string message =
      reason == nullptr ? std::string() : reason->string("message").value_or("");
  body->set("error",
            Json(Json::Object{{"code", Json("server_error")}, {"message", Json(message)}}));
  return body->dump();
}

}  // namespace

// One reader of the events. Lives on its own connection's net thread; the exchange holds it.
class BackgroundResponse::Follower : public std::enable_shared_from_this<Follower> {
 public:
  Follower(std::shared_ptr<BackgroundResponse> response, Call call, int64_t next)
      : response_(std::move(response)), call_(std::move(call)), next_(next) {}

  void start() {
    net::Exchange& exchange = *call_.exchange;
    exchange.on_closed([self = shared_from_this()] { self->over_ = true; });
    const std::weak_ptr<Follower> weak = weak_from_this();
    exchange.on_drained([weak] {
      if (const auto self = weak.lock()) self->pump();
    });
    net::HttpHeaders headers = call_.headers;
    headers.add("Content-Type", "text/event-stream; charset=utf-8");
    headers.add("Cache-Control", "no-cache");
    headers.add("X-Accel-Buffering", "no");
    exchange.start_stream(200, std::move(headers));
    pump();
  }

  void pump() {
    const std::shared_ptr<Follower> alive = shared_from_this();
    while (!over_ && call_.exchange->queued_bytes() < kBacklogBytesMax) {
      News news = response_->news(next_);
      next_ = news.next;
      if (!news.events.empty()) {
        call_.exchange->write(news.events);
        continue;
      }
      if (!news.over) return;
      over_ = true;
      call_.note_answered(200);
      call_.exchange->finish();
    }
  }

  // Any thread.
  void wake() {
    call_.exchange->post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->pump();
    });
  }

 private:
  const std::shared_ptr<BackgroundResponse> response_;
  Call call_;
  int64_t next_;
  bool over_ = false;
};

bool BackgroundResponse::over() const {
  const std::lock_guard lock(mutex_);
  return over_;
}

std::string BackgroundResponse::body() const {
  const std::lock_guard lock(mutex_);
  return body_;
}

size_t BackgroundResponse::bytes() const {
  const std::lock_guard lock(mutex_);
  return body_.size() + event_bytes_;
}

BackgroundResponse::News BackgroundResponse::news(int64_t from) const {
  const std::lock_guard lock(mutex_);
  News news{.next = std::max(from, first_), .lost = from < first_, .over = over_};
  const int64_t end = first_ + static_cast<int64_t>(events_.size());
  while (news.next < end && news.events.size() < kWrittenTogether) {
    news.events += events_[static_cast<size_t>(news.next - first_)];
    ++news.next;
  }
  return news;
}

void BackgroundResponse::follow(const std::shared_ptr<BackgroundResponse>& response, Call call,
                                int64_t after) {
  if (response->news(after + 1).lost) {
    return call.send(api::api_error({ErrorCode::kInvalidArgument,
                                     "'starting_after' is too long ago: those events are kept no "
                                     "longer",
                                     "starting_after"}));
  }
  const auto follower = std::make_shared<Follower>(response, std::move(call), after + 1);
  {
    const std::lock_guard lock(response->mutex_);
    std::erase_if(response->followers_, [](const auto& one) { return one.expired(); });
    if (!response->over_) response->followers_.push_back(follower);
  }
  follower->start();
}

void BackgroundResponse::abandon() {
  const std::function<void()> closed = std::exchange(closed_, nullptr);
  if (closed) closed();
}

void BackgroundResponse::send(net::HttpResponse response) {
  end(response.status == 200 ? std::move(response.body)
                             : failed_body(options_.body, response.body));
}

void BackgroundResponse::write(std::string_view events) {
  std::vector<std::weak_ptr<Follower>> followers;
  {
    const std::lock_guard lock(mutex_);
    while (!events.empty()) {
      const size_t gap = events.find("\n\n");
      const size_t size = gap == std::string_view::npos ? events.size() : gap + 2;
      // Comments keep a connection alive; here there is none.
      if (!events.starts_with(':')) {
        events_.emplace_back(events.substr(0, size));
        event_bytes_ += size;
      }
      events.remove_prefix(size);
    }
    while (event_bytes_ > kEventBytesMax && events_.size() > 1) {
      event_bytes_ -= events_.front().size();
      events_.pop_front();
      ++first_;
    }
    followers = followers_;
  }
  wake(followers);
}

void BackgroundResponse::finish() {
  std::string body;
  {
    const std::lock_guard lock(mutex_);
    if (!events_.empty()) body = body_of(events_.back());
  }
  end(std::move(body));
}

void BackgroundResponse::end(std::string body) {
  std::vector<std::weak_ptr<Follower>> followers;
  {
    const std::lock_guard lock(mutex_);
    if (!body.empty()) body_ = std::move(body);
    over_ = true;
    followers.swap(followers_);
  }
  wake(followers);
  // Posted, as the Generation that ends is still at work.
  post([closed = std::exchange(closed_, nullptr)] {});
  if (options_.on_over) options_.on_over();
}

void BackgroundResponse::wake(const std::vector<std::weak_ptr<Follower>>& followers) {
  for (const std::weak_ptr<Follower>& one : followers) {
    if (const auto follower = one.lock()) follower->wake();
  }
}

BackgroundResponses::~BackgroundResponses() {
  for (const std::shared_ptr<BackgroundResponse>& one : responses_) one->abandon();
}

void BackgroundResponses::add(std::shared_ptr<BackgroundResponse> response) {
  const std::lock_guard lock(mutex_);
  responses_.push_back(std::move(response));
}

void BackgroundResponses::drop_oldest() {
  const std::lock_guard lock(mutex_);
  size_t ended = 0;
  size_t bytes = 0;
  for (size_t i = responses_.size(); i-- > 0;) {
    if (!responses_[i]->over()) continue;
    bytes += responses_[i]->bytes();
    if (++ended <= kEndedMax && bytes <= kEndedBytesMax) continue;
    responses_.erase(responses_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

std::shared_ptr<BackgroundResponse> BackgroundResponses::find(const Key& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(responses_.begin(), responses_.end(), [&](const auto& response) {
    return response->id() == key.id && response->owner() == key.owner;
  });
  return found == responses_.end() ? nullptr : *found;
}

void BackgroundResponses::forget(const Key& key) {
  const std::lock_guard lock(mutex_);
  std::erase_if(responses_, [&](const auto& response) {
    return response->id() == key.id && response->owner() == key.owner;
  });
}

}  // namespace pelton::server
