// A response that is made though nobody waits for it ("background": true): to its Generation it is
// the way back, so it goes on when its client has left; others ask for it by its id, and follow its
// events from where they like. Its Generation's calls come on the net thread of the connection that
// asked for it, which may be closed by then; all else from any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "net/http_server.h"
#include "server/call.h"

namespace pelton::server {

class BackgroundResponse final : public net::Exchange {
 public:
  struct Options {
    std::string id;
    std::string owner;  // for everybody else it does not exist
    std::string body;   // the response object as it begins
    bool streamed = false;
    std::shared_ptr<net::Exchange> connection;  // whose thread it lives on
    std::function<void()> on_closed;            // there, when all is said; may be empty
  };

  // Of events that may be followed, the last so many bytes are kept.
  static constexpr size_t kEventBytesMax = size_t{4} << 20;

  explicit BackgroundResponse(Options options);

  const std::string& id() const { return id_; }
  const std::string& owner() const { return owner_; }
  bool streamed() const { return streamed_; }
  bool over() const;         // it has ended
  std::string body() const;  // as it begins, or as it ended
  size_t bytes() const;

  // Streams its events after the one of that number to `call`, and those to come.
  static void follow(const std::shared_ptr<BackgroundResponse>& response, Call call, int64_t after);

  // The response object at its end, before the last of its events.
  void end(std::string body);
  // The server is going.
  void abandon();

  // For its Generation. Nobody's backlog slows it; what it sends whole has been said at its end.
  void send(net::HttpResponse) override { close(); }
  void start_stream(int, net::HttpHeaders) override {}
  void write(std::string_view events) override;
  void finish() override { close(); }
  size_t queued_bytes() const override { return 0; }
  void on_drained(std::function<void()>) override {}
  void on_closed(std::function<void()> closed) override { closed_ = std::move(closed); }
  bool closed() const override { return false; }
  void post(std::function<void()> work) override;
  void post_after(std::chrono::milliseconds, std::function<void()>) override {}

 private:
  class Follower;
  // What a follower has not seen.
  struct News {
    std::string events;
    int64_t next = 0;
    bool lost = false;  // some are kept no longer
    bool closed = false;
  };
  News news(int64_t from) const;
  void close();
  void wake(const std::vector<std::weak_ptr<Follower>>& followers);

  const std::string id_;
  const std::string owner_;
  const bool streamed_;
  const std::function<void()> on_closed_;
  std::function<void()> closed_;  // its Generation, until that is done

  mutable std::mutex mutex_;
  std::shared_ptr<net::Exchange> connection_;  // guarded by mutex_, as all below; null once closed
  std::string body_;
  std::deque<std::string> events_;  // each with its framing
  int64_t first_ = 0;               // the number of the first of them
  size_t event_bytes_ = 0;
  bool over_ = false;
  bool is_closed_ = false;  // no more events come
  std::vector<std::weak_ptr<Follower>> followers_;
};

// Those that are being made, and the last that have ended: what they said at their end is in the
// store too, what they said on the way is here only. Any thread.
class BackgroundResponses {
 public:
  static constexpr size_t kEndedMax = 64;
  static constexpr size_t kEndedBytesMax = size_t{64} << 20;

  ~BackgroundResponses();

  struct Key {
    std::string_view owner;
    std::string_view id;
  };
  void add(std::shared_ptr<BackgroundResponse> response);
  std::shared_ptr<BackgroundResponse> find(const Key& key) const;  // null: there is none
  bool forget(const Key& key);                                     // false: there is none
  void drop_oldest();  // of those that have ended, what is too many

 private:
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<BackgroundResponse>> responses_;  // guarded by mutex_; oldest first
};

}  // namespace pelton::server
