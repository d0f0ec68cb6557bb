// GET /v1/videos/ID/events: what becomes of a video, as server-sent events until it is made or is
// not going to be. Its worker is asked again and again, each time as if its client had asked over
// HTTP, so that whose video it is and where it is made are known as for such a request. Lives on
// its connection's net thread; the exchange keeps it alive until it is over.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "net/http_server.h"

namespace pelton::gateway {

class VideoEvents : public std::enable_shared_from_this<VideoEvents> {
 public:
  // Answers a request of its own, over the given exchange, as one that came over HTTP.
  using Forward =
      std::function<void(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange)>;
  // Whether that is what the request asks for.
  static bool asked(const net::HttpRequest& request);
  static void open(net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
                   Forward forward);

 private:
  class Question;
  struct Key {};  // only open() makes one

 public:
  VideoEvents(Key, net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
              Forward forward);

 private:
  void start();
  void ask();
  void on_answer();
  void on_state(const net::HttpResponse& answer);
  void on_failure(const net::HttpResponse& answer);
  void ask_later();
  void say(std::string_view type, std::string_view field, std::string_view body);

  const net::HttpRequest request_;  // without a body
  const std::shared_ptr<net::Exchange> exchange_;
  const Forward forward_;
  std::weak_ptr<Question> question_;
  std::optional<net::HttpResponse> answer_;  // of the last question
  bool has_begun_ = false;
  std::string last_;    // state that was said
  int unchanged_ = 0;   // answers since then
  int unanswered_ = 0;  // questions in a row
};

}  // namespace pelton::gateway
