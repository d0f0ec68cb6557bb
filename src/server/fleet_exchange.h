// The way back to a gateway: a net::Exchange for the request pipeline whose answer leaves as frames
// (cluster/frame.h) in the body of a streamed HTTP answer. Bytes go out together with the tokens
// they are made of, so that the gateway always knows from where another worker would have to go on.
// A WebSocket's messages leave as lines of the answer's bytes ("!CODE REASON" is its goodbye), and
// its client's come by hear(). On the net thread of the exchange beneath.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/error.h"
#include "net/http_server.h"
#include "server/answer_observer.h"

namespace pelton::server {

class FleetExchange final : public net::Exchange,
                            public AnswerObserver,
                            public std::enable_shared_from_this<FleetExchange> {
 public:
  // So often it says something: a gateway that hears nothing for longer takes the connection for
  // dead (cluster::WorkerRecord::beat_ms).
  static constexpr std::chrono::milliseconds kBeatTime{500};

  // `beneath` has been answered by nobody. `said`: of how many tokens of each choice the gateway
  // knows.
  FleetExchange(std::shared_ptr<net::Exchange> beneath, std::vector<size_t> said);
  ~FleetExchange() override;

  // From now on until its end. `leaves`: whether this worker is being stopped.
  void begin_beats(std::function<bool()> leaves);

  // What a WebSocket's client has said: the number of the first message, from 0. Those that have
  // come before are left out. Not before accept_websocket(), and from where the others come.
  struct Heard {
    int64_t first = 0;
    std::vector<std::string> messages;
    bool drains = false;  // the gateway is about to end
  };
  // Why it is not heard; nothing: it is. Where the session ends over it, its goodbye says why too.
  std::optional<api::ApiError> hear(Heard heard);
  // Of one that no run has opened here, or whose end was heard.
  static api::ApiError session_unknown();
  // Whoever has taken the WebSocket ends it, once it has answered what has been said; on its
  // thread.
  void drain();

  void send(net::HttpResponse response) override;
  void start_stream(int status, net::HttpHeaders headers) override;
  void write(std::string_view bytes) override;
  void finish() override;
  void accept_websocket(net::HttpHeaders headers, WebSocket socket) override;
  void finish_websocket(int code, std::string reason) override;
  size_t queued_bytes() const override { return beneath_->queued_bytes(); }
  void on_drained(std::function<void()> drained) override {
    beneath_->on_drained(std::move(drained));
  }
  void on_closed(std::function<void()> closed) override { beneath_->on_closed(std::move(closed)); }
  bool closed() const override { return beneath_->closed(); }
  void post(std::function<void()> work) override { beneath_->post(std::move(work)); }
  std::shared_ptr<net::Notifier> make_notifier(std::weak_ptr<net::NotifierTask> work) override {
    return beneath_->make_notifier(std::move(work));
  }
  std::shared_ptr<net::Notifier> make_thread_notifier(
      std::weak_ptr<net::NotifierTask> work) override {
    return beneath_->make_thread_notifier(std::move(work));
  }
  const void* thread_name() const override { return beneath_->thread_name(); }
  void post_after(std::chrono::milliseconds delay, std::function<void()> work) override {
    beneath_->post_after(delay, std::move(work));
  }

  void note_prompt(size_t prompt, const std::vector<TokenId>& tokens) override;
  void note_adapter(std::string_view digest) override;
  void note_found(size_t choice, const engine::PromptFound& found) override;
  void note_token(size_t choice, const engine::SampledToken& token) override;
  void note_end(size_t choice, const engine::StreamEnd& end) override;
  void note_last() override { last_ = true; }
  void flush() override;
  void note_failure(const api::ApiError& error, std::string_view event) override;

 private:
  // What has been sampled and not sent, by choice.
  struct Sampled {
    std::vector<engine::SampledToken> tokens;
    std::string end;  // a ChoiceEnd; empty: it goes on
  };

  Sampled& sampled(size_t choice);
  void append_sampled(std::string& frames);
  std::optional<api::ApiError> goodbye(int code, std::string reason);
  void begin();
  void end();
  void send_frames(const std::string& frames);
  void beat();

  const std::shared_ptr<net::Exchange> beneath_;
  std::vector<size_t> said_;      // tokens, by choice
  std::vector<Sampled> sampled_;  // by choice
  std::string prompts_;           // frames before the first token, not sent yet
  bool begun_ = false;
  bool spoke_ = false;  // since the last beat was due
  bool last_ = false;   // the next bytes are the last
  bool over_ = false;
  bool ended_ = false;  // beneath
  std::function<bool()> leaves_;
  std::optional<WebSocket> socket_;  // none: its answer is none
  int64_t heard_ = 0;                // messages
  bool said_goodbye_ = false;
  bool drained_ = false;  // it has been asked to end
};

}  // namespace pelton::server
