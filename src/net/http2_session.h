// From bytes to HTTP/2 requests and back (RFC 9113), without sockets: nghttp2 frames and checks,
// and this counts what a peer may cost. Requests come as events once bytes were received; answers
// are given by stream and leave by produce(). Owned by one connection, on its thread.
//
// What a peer may do: so many streams at a time; of each the header's bytes and lines, and the
// body's bytes, that HTTP/1.1 allows; resets, and frames for which we would reset a stream, only as
// fast as answers are completed, with some in advance; frames that bring nothing (pings, settings,
// priorities, empty data) not without end. What is more ends the connection with GOAWAY
// (ENHANCE_YOUR_CALM).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/head_scan.h"
#include "net/http_message.h"

struct nghttp2_session;

namespace pelton::net {

class Http2Session {
 public:
  // What every HTTP/2 client says first.
  static constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

  struct Limits {
    HttpLimits http;
    int streams_max = 128;
    int resets_in_advance = 200;
    int resets_regained_s = 20;
    // In a row, without a request's header, some of a body, or some of an answer.
    int empty_frames_max = 10'000;
    size_t empty_bytes_max = size_t{4} << 20;  // above what may be on its way of refused bodies
  };

  struct Event {
    enum class Kind : uint8_t {
      kHead,     // a header, and a body will follow
      kBody,     // some of the body has come
      kRequest,  // take() it
      kGone,     // the peer has reset the stream, or broken it: its answer is for nobody
    };
    Kind kind;
    int32_t stream;
  };

  explicit Http2Session(const Limits& limits);
  ~Http2Session();
  Http2Session(const Http2Session&) = delete;
  Http2Session& operator=(const Http2Session&) = delete;

  // False: the peer may say nothing more. What produce() still has says why.
  bool receive(std::string_view bytes);
  // In order, of the bytes received. An event may be of a stream that is gone by now.
  std::vector<Event> take_events();

  // Of a stream whose header is there; null: there is none such.
  const HttpRequest* head(int32_t stream) const;
  // Once, of a whole request or one whose body was left. With the refusal that it is to be answered
  // with, if it is no good one.
  struct Taken {
    HttpRequest request;
    std::optional<HttpReject> refusal;
  };
  std::optional<Taken> take(int32_t stream);
  // The request is handled without the rest of its body; or not at all, for this reason.
  void leave_body(int32_t stream);
  void refuse(int32_t stream, HttpReject refusal);
  // Of a body that is being read; 0 of others.
  size_t body_bytes(int32_t stream) const;
  // Of all bodies that are being read.
  size_t held_bytes() const;

  // The answer. Streams that are gone are ignored. Header names are written in lower case; framing
  // fields are left out, and what is no text in a value.
  void answer(int32_t stream, int status, const HttpHeaders& headers, std::string_view date);
  void write(int32_t stream, std::string_view bytes);
  void finish(int32_t stream);
  void reset(int32_t stream);  // amid an answer: the peer sees that it is not whole
  // Written and not yet produced; and produced since the answer began.
  size_t unsent_bytes(int32_t stream) const;
  uint64_t sent_bytes(int32_t stream) const;
  // Of all streams.
  size_t unsent_bytes() const { return unsent_bytes_; }
  // An interim answer: the body may come.
  void send_continue(int32_t stream);
  // Streams that have something to send yet, be it only their end.
  std::vector<int32_t> unsent_streams() const;

  // Appends what is to be sent, about as much as that. False: nothing.
  bool produce(std::string& out, size_t bytes);

  // The last produce() may have left something.
  bool has_more() const { return has_more_; }

  // Says that nothing new will be taken; and then, what was the last that was. What runs is
  // answered.
  void announce_end();
  void go_away();
  // Its header does not come to an end: nothing more is read, and it hears why (ENHANCE_YOUR_CALM).
  void give_up_header() { calm_down(); }
  // So much time has passed.
  void tick(std::chrono::milliseconds passed);
  // All is said and answered, or nothing more can be.
  bool is_over() const;
  int stream_count() const { return static_cast<int>(streams_.size()); }
  // Whose header has begun and is not whole; 0: nobody's.
  int32_t header_stream() const { return header_stream_; }

 private:
  struct Stream {
    // The request.
    HttpRequest request;
    std::string method;
    std::string target;
    std::string authority;
    std::optional<HttpReject> refusal;
    size_t header_bytes = 0;
    size_t header_count = 0;
    bool has_head = false;
    bool is_complete = false;  // the peer has said all
    bool is_body_left = false;
    bool is_taken = false;
    bool was_reset = false;  // by the peer
    // The answer.
    bool is_answered = false;  // its head has been given
    bool is_finished = false;
    bool is_waiting = false;  // nghttp2 must hear when there is more
    bool is_head_request = false;
    std::string out;
    size_t out_begin = 0;
    uint64_t sent = 0;
  };
  struct Callbacks;
  friend struct Callbacks;

  static size_t unsent(const Stream& stream) { return stream.out.size() - stream.out_begin; }
  Stream* find(int32_t stream);
  const Stream* find(int32_t stream) const;
  bool add_header(int32_t stream, std::string_view name, std::string_view value);
  void end_header(int32_t stream, bool ends_stream);
  void end_request(int32_t stream);
  void add_body(int32_t stream, std::string_view bytes);
  void close_stream(int32_t stream, uint32_t error);
  void count_reset();
  void count_frame();
  void count_something();
  void calm_down();
  bool end_early();
  void resume(int32_t stream, Stream& state);

  const Limits limits_;
  nghttp2_session* session_ = nullptr;
  std::map<int32_t, Stream> streams_;
  std::vector<Event> events_;
  // Answered before the peer had said all; those of before the last tick are ended now.
  std::vector<int32_t> early_;
  std::vector<int32_t> early_before_;
  size_t unsent_bytes_ = 0;
  int32_t header_stream_ = 0;
  int resets_left_;
  int64_t regaining_ = 0;  // thousandths of a reset
  // Since something came or went:
  int empty_frames_ = 0;
  size_t empty_bytes_ = 0;
  bool is_broken_ = false;
  bool has_more_ = false;
};

}  // namespace pelton::net
