#include "bench/live_transcript.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/base64.h"
#include "base/json.h"
#include "net/websocket_client.h"

namespace pelton::bench {
namespace {

using Clock = net::WebSocketClient::Clock;
using std::chrono::milliseconds;

constexpr std::string_view kText = "conversation.item.input_audio_transcription.";
constexpr milliseconds kLook{200};

std::string said_by(const Json& event) {
  const Json* const error = event.find("error");
  if (error == nullptr) return "an error without a reason";
  const std::string code = error->string("code").value_or("");
  const std::string message = error->string("message").value_or("an error without a message");
  return code.empty() ? message : fmt::format("{} ({})", message, code);
}

// One stream while it runs.
class Running {
 public:
  Running(const LiveStream& stream, LiveOutcome& outcome) : stream_(stream), outcome_(outcome) {}

  void run() {
    if (!sleep_until(Clock::now() + stream_.head_start)) return;
    auto opened = net::WebSocketClient::open(stream_.call, {.stops = stream_.stops});
    if (!opened.ok()) return transcript().fail(opened.error().message);
    client_ = std::move(*opened);
    begun_ = Clock::now();
    if (!send(stream_.session)) return;
    if (!hear_until([&] { return transcript().is_updated(); }, stream_.call.head_time_max)) return;
    begun_ = Clock::now();
    if (!say_all()) return;
    transcript().commit(now_s());
    if (!send(R"({"type":"input_audio_buffer.commit"})")) return;
    hear_until([] { return false; }, stream_.quiet_time_max);
    client_->close();
  }

 private:
  LiveTranscript& transcript() { return outcome_.transcript; }
  double now_s() const { return std::chrono::duration<double>(Clock::now() - begun_).count(); }

  bool stopped() {
    if (!stream_.stops || !stream_.stops()) return false;
    transcript().fail("interrupted");
    return true;
  }
  bool sleep_until(Clock::time_point end) {
    while (Clock::now() < end) {
      if (stopped()) return false;
      std::this_thread::sleep_until(std::min(end, Clock::now() + kLook));
    }
    return true;
  }
  bool send(std::string_view message) {
    const Result<void> sent = client_->send(message);
    if (!sent.ok()) transcript().fail(sent.error().message);
    return sent.ok();
  }
  // What has come by then. Whether the stream goes on.
  bool hear_by(Clock::time_point until, bool& came) {
    came = false;
    auto event = client_->receive(until);
    if (!event.ok()) {
      transcript().fail(event.error().message);
      return false;
    }
    came = event->has_value();
    if (came) transcript().take(**event, now_s());
    return !transcript().is_over();
  }
  // Until `done`, or the stream is over, or nothing has come for so long.
  template <typename Done>
  bool hear_until(const Done& done, milliseconds quiet_max) {
    Clock::time_point end = Clock::now() + quiet_max;
    while (!done()) {
      bool came = false;
      if (!hear_by(std::min(end, Clock::now() + kLook), came)) return false;
      if (came) end = Clock::now() + quiet_max;
      if (Clock::now() < end) continue;
      transcript().fail(
          fmt::format("no event for {:.1f} s", static_cast<double>(quiet_max.count()) / 1e3));
      return false;
    }
    return true;
  }

  bool say_all() {
    const size_t chunk =
        static_cast<size_t>(stream_.rate) * static_cast<size_t>(stream_.chunk.count()) / 1000 * 2;
    for (size_t at = 0; at < stream_.pcm.size(); at += chunk) {
      const std::string_view piece = stream_.pcm.substr(at, chunk);
      const double due_s = static_cast<double>(at + piece.size()) / 2.0 / stream_.rate;
      const auto due = begun_ + std::chrono::duration_cast<Clock::duration>(
                                    std::chrono::duration<double>(due_s));
      while (Clock::now() < due) {
        bool came = false;
        if (!hear_by(due, came)) return false;
      }
      if (!send(fmt::format(R"({{"type":"input_audio_buffer.append","audio":"{}"}})",
                            base::base64(piece))))
        return false;
      outcome_.late_s = std::max(outcome_.late_s, now_s() - due_s);
    }
    return true;
  }

  const LiveStream& stream_;
  LiveOutcome& outcome_;
  std::unique_ptr<net::WebSocketClient> client_;
  Clock::time_point begun_;
};

}  // namespace

void LiveTranscript::fail(std::string why) {
  if (failure_.empty()) failure_ = std::move(why);
}

void LiveTranscript::take(std::string_view event, double at_s) {
  const Result<Json> json = Json::parse(event);
  const std::string type = json.ok() ? json->string("type").value_or("") : "";
  if (type.empty()) return fail("an event that is no JSON with a type");
  if (type == "error") return fail(said_by(*json));
  if (type == "session.updated") is_updated_ = true;
  if (!std::string_view(type).starts_with(kText)) return;
  const std::string_view kind = std::string_view(type).substr(kText.size());
  if (kind == "failed") return fail(said_by(*json));
  if (kind == "delta") {
    const std::string delta = json->string("delta").value_or("");
    if (!first_text_s_ && !delta.empty()) first_text_s_ = at_s;
    return;
  }
  if (kind != "completed") return;
  const std::optional<std::string> transcript = json->string("transcript");
  if (!transcript) return fail("a transcript without its text");
  text_ = *transcript;
  completed_s_ = at_s;
}

LiveOutcome run_live_stream(const LiveStream& stream) {
  LiveOutcome outcome;
  Running(stream, outcome).run();
  return outcome;
}

}  // namespace pelton::bench
