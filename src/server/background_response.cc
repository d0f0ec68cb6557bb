#include "server/background_response.h"

#include <algorithm>
#include <utility>

#include "base/json_writer.h"

namespace pelton::server {
namespace {

// What is written to a follower at a time, and the backlog above which it waits for its reader.
constexpr size_t kWrittenTogether = size_t{256} << 10;
constexpr size_t kBacklogBytesMax = size_t{1} << 20;

// The last that a follower hears who reads so slowly that what it has not seen is kept no longer:
// never silently less than all.
std::string lost_event(int64_t number) {
  std::string json;
  base::JsonWriter writer(json);
  writer.begin_object().key("type").string("error").key("sequence_number").integer(number);
  writer.key("code").string("events_lost").key("message");
  writer.string("this stream was read too slowly: the events from here on are kept no longer");
  writer.key("param").null().end_object();
  return "event: error\ndata: " + json + "\n\n";
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
      if (news.lost) {
        news.events = lost_event(next_);
        news.closed = true;
        over_ = true;
      }
      next_ = news.next;
      if (!news.events.empty()) {
        call_.note_written(news.events.size());
        call_.exchange->write(news.events);
        if (!over_) continue;
      }
      if (!news.closed) return;
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

BackgroundResponse::BackgroundResponse(Options options)
    : id_(std::move(options.id)),
      owner_(std::move(options.owner)),
      streamed_(options.streamed),
      on_closed_(std::move(options.on_closed)),
      connection_(std::move(options.connection)),
      body_(std::move(options.body)) {}

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
  News news{.next = from, .lost = from < first_, .closed = is_closed_};
  if (news.lost) return news;
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
    if (!response->is_closed_) response->followers_.push_back(follower);
  }
  follower->start();
}

void BackgroundResponse::abandon() {
  const std::function<void()> closed = std::exchange(closed_, nullptr);
  if (closed) closed();
}

void BackgroundResponse::post(std::function<void()> work) {
  std::shared_ptr<net::Exchange> connection;
  {
    const std::lock_guard lock(mutex_);
    connection = connection_;
  }
  if (connection != nullptr) connection->post(std::move(work));
}

void BackgroundResponse::end(std::string body) {
  const std::lock_guard lock(mutex_);
  body_ = std::move(body);
  over_ = true;
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

// Its connection, which may long be gone, is kept no longer than that.
void BackgroundResponse::close() {
  std::vector<std::weak_ptr<Follower>> followers;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    followers.swap(followers_);
  }
  wake(followers);
  // Posted, as the Generation that ends is still at work.
  post([closed = std::exchange(closed_, nullptr)] {});
  {
    const std::lock_guard lock(mutex_);
    connection_ = nullptr;
  }
  if (on_closed_) on_closed_();
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

bool BackgroundResponses::forget(const Key& key) {
  const std::lock_guard lock(mutex_);
  return std::erase_if(responses_, [&](const auto& response) {
           return response->id() == key.id && response->owner() == key.owner;
         }) > 0;
}

}  // namespace pelton::server
