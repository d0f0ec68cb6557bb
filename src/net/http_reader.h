// From bytes to HTTP/1.1 messages, without sockets: append() what has come, advance() as far as it
// goes. Beast parses; in front of it stands a stricter scan (bare CR or LF, obs-fold, NUL, sizes
// and counts), and behind it a stricter reading of the framing headers, because what one parser
// forgives another reads differently, and that difference is request smuggling. Trailers are
// dropped. Owned by one connection, on its thread. Memory is bounded by the limits.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "net/error_form.h"
#include "net/head_scan.h"
#include "net/http_message.h"

namespace pelton::net {

// Many requests, one after another, from one connection.
class RequestReader {
 public:
  enum class State {
    kIdle,  // nothing of the next request has come yet
    kHead,
    kBody,
    kDone,  // take() it
    kBad,   // reject() says why; nothing more is read
  };

  explicit RequestReader(const HttpLimits& limits);
  ~RequestReader();

  void append(std::string_view bytes);
  State advance();
  State state() const { return state_; }

  // Hands out the finished request; what came after it is the beginning of the next.
  HttpRequest take();
  const HttpReject& reject() const { return reject_; }
  // Of the request that is being read, or was refused: how its client reads errors.
  ErrorForm error_form() const { return error_form_; }
  // What came after the last request: the beginning of something that is no HTTP.
  std::string take_unread();
  // Gives up what is being read: kBad, for this reason.
  void refuse(HttpReject reject);
  // Of the request being read, in kBody: what its header says.
  const HttpRequest& head() const { return request_; }
  // In kBody: kDone, without the body, and the last request of this connection.
  void leave_body();

  // Of the request being read, from kBody on, until the next advance().
  bool expects_continue() const { return expects_continue_; }
  bool keep_alive() const { return keep_alive_; }
  bool is_http_1_0() const { return is_http_1_0_; }

  // Bytes received and not yet part of a request.
  size_t buffered_bytes() const { return buffer_.size() - consumed_; }
  // The same and what the request's body takes up so far.
  size_t held_bytes() const { return buffered_bytes() + request_.body.capacity(); }

 private:
  struct Parser;
  std::string_view unread() const { return std::string_view(buffer_).substr(consumed_); }
  void consume(size_t bytes);
  State fail(int status, std::string_view code, std::string message);
  State refuse_body();
  State read_head();
  State read_body();
  State accept_head(size_t head_bytes);
  State check_framing();
  State check_request();

  const HttpLimits limits_;
  State state_ = State::kIdle;
  HttpReject reject_;
  std::string buffer_;
  size_t consumed_ = 0;  // of buffer_
  int empty_lines_ = 0;  // before the request
  HeadScanner scanner_;
  std::unique_ptr<Parser> parser_;
  HttpRequest request_;
  ErrorForm error_form_ = ErrorForm::kObject;
  bool expects_continue_ = false;
  bool keep_alive_ = false;
  bool is_http_1_0_ = false;
};

// One response; make another for the next. Interim (1xx) responses are skipped.
class ResponseReader {
 public:
  enum class State { kHead, kBody, kDone, kBad };

  struct Options {
    HttpLimits limits;
    bool head_request = false;  // no body follows, whatever the header says
  };

  explicit ResponseReader(const Options& options);
  ~ResponseReader();

  void append(std::string_view bytes);
  // Gives body bytes to `on_body` as they come; they are not kept. Returns at the end of the head
  // (kHead -> kBody or kDone) too, so that the caller sees status() before the body.
  State advance(base::FunctionRef<void(std::string_view)> on_body);
  // The peer has closed: ends a body that has no other end; anything else unfinished is kBad.
  State finish_at_eof();

  State state() const { return state_; }
  int status() const { return status_; }
  const HttpHeaders& headers() const { return headers_; }
  bool keep_alive() const { return keep_alive_; }
  bool got_some() const { return got_some_; }  // a byte of this response has come
  const std::string& problem() const { return problem_; }

 private:
  struct Parser;
  std::string_view unread() const { return std::string_view(buffer_).substr(consumed_); }
  void consume(size_t bytes);
  State fail(std::string problem);
  State read_head();
  State accept_head(size_t head_bytes);
  State read_body(base::FunctionRef<void(std::string_view)> on_body);

  const Options options_;
  State state_ = State::kHead;
  std::string problem_;
  std::string buffer_;
  size_t consumed_ = 0;
  HeadScanner scanner_;
  std::unique_ptr<Parser> parser_;
  int status_ = 0;
  HttpHeaders headers_;
  bool keep_alive_ = false;
  bool got_some_ = false;
};

}  // namespace pelton::net
