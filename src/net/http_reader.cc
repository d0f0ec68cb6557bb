#include "net/http_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <boost/beast/http/basic_parser.hpp>

#include "base/check.h"
#include "net/chunk_decoder.h"
#include "net/request_check.h"

namespace pelton::net {
namespace {

namespace http = boost::beast::http;

constexpr int kEmptyLinesMax = 2;  // before one request
using boost::beast::error_code;
using BeastView = boost::beast::string_view;

std::string to_string(BeastView view) {
  return {view.data(), view.size()};
}

enum class BodyState { kMore, kDone, kMalformed, kTooLarge };

// What both directions share: Beast's parser reduced to events, for heads and for bodies whose end
// a length or the connection says; chunks are our own.
template <bool kRequest>
class EventParser : public http::basic_parser<kRequest> {
 public:
  using BodySink = base::FunctionRef<void(std::string_view)>;

  EventParser(HttpHeaders& headers, size_t body_bytes_max)
      : headers_(headers), chunks_(body_bytes_max) {
    this->header_limit(std::numeric_limits<uint32_t>::max());  // our own scan came first
    this->body_limit(body_bytes_max);
  }

  // Feeds body bytes; `used` is how many were taken.
  struct Fed {
    BodyState state;
    size_t used;
  };
  Fed put_body(std::string_view bytes, BodySink sink) {
    if (this->chunked()) return put_chunks(bytes, sink);
    sink_ = &sink;
    error_code error;
    size_t used = 0;
    while (!this->is_done() && used < bytes.size() && !error) {
      used += this->put({bytes.data() + used, bytes.size() - used}, error);
    }
    sink_ = nullptr;
    if (error == http::error::body_limit) return {BodyState::kTooLarge, used};
    if (error) return {BodyState::kMalformed, used};
    return {this->is_done() ? BodyState::kDone : BodyState::kMore, used};
  }

  std::string method;
  std::string target;
  int version = 0;
  int status = 0;

 private:
  Fed put_chunks(std::string_view bytes, BodySink sink) {
    const size_t used = chunks_.feed(bytes, sink);
    switch (chunks_.state()) {
      case ChunkDecoder::State::kMore:
        return {BodyState::kMore, used};
      case ChunkDecoder::State::kDone:
        return {BodyState::kDone, used};
      case ChunkDecoder::State::kTooLarge:
        return {BodyState::kTooLarge, used};
      case ChunkDecoder::State::kMalformed:
        break;
    }
    return {BodyState::kMalformed, used};
  }

  void on_request_impl(http::verb, BeastView request_method, BeastView request_target,
                       int http_version, error_code&) override {
    method = to_string(request_method);
    target = to_string(request_target);
    version = http_version;
  }
  void on_response_impl(int code, BeastView, int http_version, error_code&) override {
    status = code;
    version = http_version;
  }
  void on_field_impl(http::field, BeastView name, BeastView value, error_code&) override {
    headers_.add(to_string(name), to_string(value));
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  size_t on_body_impl(BeastView body, error_code&) override {
    (*sink_)({body.data(), body.size()});
    return body.size();
  }
  void on_chunk_header_impl(std::uint64_t, BeastView, error_code&) override {}
  size_t on_chunk_body_impl(std::uint64_t, BeastView body, error_code&) override {
    return body.size();
  }
  void on_finish_impl(error_code&) override {}

  HttpHeaders& headers_;
  BodySink* sink_ = nullptr;
  ChunkDecoder chunks_;
};

bool all_digits(std::string_view text) {
  return !text.empty() && text.size() <= 19 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool wants_keep_alive(const HttpHeaders& headers, int version) {
  bool keep_alive = version >= 11;
  for (const auto& [name, value] : headers.fields()) {
    if (!equals_without_case(name, "Connection")) continue;
    if (header_list_contains(value, "close")) return false;
    if (header_list_contains(value, "keep-alive")) keep_alive = true;
  }
  return keep_alive;
}

// Framing that two readers could understand differently. Empty: sound.
struct FramingProblem {
  int status = 0;
  std::string_view message;
};
FramingProblem framing_problem(const HttpHeaders& headers, int version) {
  const size_t lengths = headers.count("Content-Length");
  const size_t codings = headers.count("Transfer-Encoding");
  if (lengths > 0 && codings > 0) {
    return {400, "the message has both Content-Length and Transfer-Encoding"};
  }
  if (lengths > 1) return {400, "the message has more than one Content-Length"};
  if (lengths == 1 && !all_digits(headers.get("Content-Length"))) {
    return {400, "Content-Length is not a number"};
  }
  if (codings == 0) return {};
  if (version < 11) return {400, "Transfer-Encoding needs HTTP/1.1"};
  const bool chunked =
      codings == 1 && equals_without_case(headers.get("Transfer-Encoding"), "chunked");
  if (!chunked) return {501, "the only Transfer-Encoding understood is \"chunked\""};
  return {};
}

std::string malformed_head(const error_code& error) {
  if (error == http::error::bad_content_length || error == http::error::multiple_content_length) {
    return "the header 'Content-Length' is no whole number, or there is 'Transfer-Encoding', too";
  }
  if (error == http::error::bad_transfer_encoding) {
    return "the header 'Transfer-Encoding' is malformed";
  }
  return "the request line is malformed";
}

}  // namespace

struct RequestReader::Parser : EventParser<true> {
  using EventParser<true>::EventParser;
};
struct ResponseReader::Parser : EventParser<false> {
  using EventParser<false>::EventParser;
};

RequestReader::RequestReader(const HttpLimits& limits) : limits_(limits) {}
RequestReader::~RequestReader() = default;

void RequestReader::append(std::string_view bytes) {
  if (state_ == State::kBad) return;
  if (consumed_ > 0) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
  }
  buffer_ += bytes;
}

void RequestReader::consume(size_t bytes) {
  consumed_ += bytes;
  if (consumed_ == buffer_.size()) {
    buffer_.clear();
    consumed_ = 0;
  }
}

RequestReader::State RequestReader::fail(int status, std::string_view code, std::string message) {
  reject_ = {status, std::string(code), std::move(message)};
  parser_.reset();
  std::string().swap(buffer_);  // an assignment would keep its memory
  consumed_ = 0;
  std::string().swap(request_.body);
  request_ = {};
  return state_ = State::kBad;
}

void RequestReader::refuse(HttpReject reject) {
  fail(reject.status, reject.code, std::move(reject.message));
}

RequestReader::State RequestReader::refuse_body() {
  HttpReject problem = body_too_large(limits_.body_bytes_max);
  return fail(problem.status, problem.code, std::move(problem.message));
}

RequestReader::State RequestReader::advance() {
  expects_continue_ = false;
  if (state_ == State::kIdle || state_ == State::kHead) read_head();
  if (state_ == State::kBody) read_body();
  return state_;
}

std::string RequestReader::take_unread() {
  std::string rest(unread());
  buffer_.clear();
  consumed_ = 0;
  return rest;
}

HttpRequest RequestReader::take() {
  CHECK(state_ == State::kDone);
  state_ = State::kIdle;
  error_form_ = ErrorForm::kObject;
  empty_lines_ = 0;
  parser_.reset();
  scanner_ = {};
  // While it is answered, and idle for a while after that, it needs nothing.
  if (buffer_.empty()) std::string().swap(buffer_);
  return std::exchange(request_, {});
}

void RequestReader::leave_body() {
  CHECK(state_ == State::kBody);
  std::string().swap(request_.body);
  std::string().swap(buffer_);
  consumed_ = 0;
  keep_alive_ = false;
  state_ = State::kDone;
}

RequestReader::State RequestReader::read_head() {
  // An empty line before a request is forgiven, as RFC 9112 (2.2) asks, and a second one; more are
  // no beginning of a request, and would otherwise be read for as long as they come.
  while (state_ == State::kIdle && unread().starts_with("\r\n")) {
    if (++empty_lines_ > kEmptyLinesMax) {
      return fail(400, "malformed_http", "more than two empty lines stand before the request line");
    }
    consume(2);
  }
  if (unread().empty() || unread() == "\r") return state_;
  state_ = State::kHead;
  const HeadScan scan = scanner_.scan(unread(), limits_);
  switch (scan.kind) {
    case HeadScan::Kind::kIncomplete:
      return state_;
    case HeadScan::Kind::kBad:
      return fail(scan.status, scan.code, std::string(scan.message));
    case HeadScan::Kind::kComplete:
      return accept_head(scan.head_bytes);
  }
  return state_;
}

RequestReader::State RequestReader::accept_head(size_t head_bytes) {
  request_ = {};
  parser_ = std::make_unique<Parser>(request_.headers, limits_.body_bytes_max);
  error_code error;
  const size_t taken = parser_->put({unread().data(), head_bytes}, error);
  error_form_ = error_form_of(parser_->target);
  if (error == http::error::bad_version) {
    return fail(505, "http_version", "the request is not HTTP/1.0 or HTTP/1.1");
  }
  if (error == http::error::body_limit) {
    return refuse_body();
  }
  if (error || taken != head_bytes) {
    const std::string line = malformed_line({unread().data(), head_bytes});
    return fail(400, "malformed_http", line.empty() ? malformed_head(error) : line);
  }
  consume(head_bytes);
  if (check_framing() == State::kBad || check_request() == State::kBad) return state_;
  return state_ = parser_->is_done() ? State::kDone : State::kBody;
}

RequestReader::State RequestReader::check_framing() {
  const FramingProblem problem = framing_problem(request_.headers, parser_->version);
  if (problem.status == 0) return state_;
  return fail(problem.status, problem.status == 501 ? "transfer_encoding" : "malformed_http",
              std::string(problem.message));
}

RequestReader::State RequestReader::check_request() {
  const HttpHeaders& headers = request_.headers;
  is_http_1_0_ = parser_->version < 11;
  keep_alive_ = wants_keep_alive(headers, parser_->version);

  const size_t hosts = headers.count("Host");
  if (hosts > 1 || (hosts == 0 && !is_http_1_0_)) {
    return fail(400, "malformed_http",
                hosts == 0 ? "the header 'Host' is missing" : "the header 'Host' is there twice");
  }
  if (std::optional<HttpReject> problem =
          complete_request(parser_->method, parser_->target, request_)) {
    return fail(problem->status, problem->code, std::move(problem->message));
  }
  expects_continue_ =
      headers.has("Expect") && !is_http_1_0_ && !parser_->is_done() && unread().empty();
  return state_;
}

RequestReader::State RequestReader::read_body() {
  std::string& body = request_.body;
  const auto [state, used] =
      parser_->put_body(unread(), [&body](std::string_view bytes) { body += bytes; });
  consume(used);
  switch (state) {
    case BodyState::kMore:
      return state_;
    case BodyState::kDone:
      return state_ = State::kDone;
    case BodyState::kTooLarge:
      return refuse_body();
    case BodyState::kMalformed:
      break;
  }
  return fail(
      400, "malformed_http",
      request_.headers.has("Transfer-Encoding")
          ? "the request body is malformed: its chunks are not framed as RFC 9112 (7.1) says"
          : "the request body is malformed");
}

ResponseReader::ResponseReader(const Options& options) : options_(options) {}
ResponseReader::~ResponseReader() = default;

void ResponseReader::append(std::string_view bytes) {
  if (state_ == State::kBad || bytes.empty()) return;
  got_some_ = true;
  if (consumed_ > 0) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
  }
  buffer_ += bytes;
}

void ResponseReader::consume(size_t bytes) {
  consumed_ += bytes;
  if (consumed_ == buffer_.size()) {
    buffer_.clear();
    consumed_ = 0;
  }
}

ResponseReader::State ResponseReader::fail(std::string problem) {
  problem_ = std::move(problem);
  parser_.reset();
  buffer_ = {};
  consumed_ = 0;
  return state_ = State::kBad;
}

ResponseReader::State ResponseReader::advance(base::FunctionRef<void(std::string_view)> on_body) {
  if (state_ == State::kHead) {
    read_head();
    return state_;
  }
  if (state_ == State::kBody) read_body(on_body);
  return state_;
}

ResponseReader::State ResponseReader::read_head() {
  while (state_ == State::kHead) {
    const HeadScan scan = scanner_.scan(unread(), options_.limits);
    if (scan.kind == HeadScan::Kind::kIncomplete) return state_;
    if (scan.kind == HeadScan::Kind::kBad) return fail(std::string(scan.message));
    scanner_ = {};
    if (accept_head(scan.head_bytes) == State::kHead && unread().empty()) return state_;
  }
  return state_;
}

ResponseReader::State ResponseReader::accept_head(size_t head_bytes) {
  headers_ = {};
  parser_ = std::make_unique<Parser>(headers_, options_.limits.body_bytes_max);
  if (options_.head_request) parser_->skip(true);
  error_code error;
  const size_t taken = parser_->put({unread().data(), head_bytes}, error);
  if (error == http::error::body_limit) return fail("the response body is larger than the limit");
  if (error || taken != head_bytes) return fail("the response header is malformed");
  consume(head_bytes);
  status_ = parser_->status;
  if (status_ < 100 || status_ > 599) return fail("the response has an impossible status");
  if (status_ < 200) {
    if (status_ == 101) return fail("the server switched protocols unasked");
    return state_ = State::kHead;
  }
  const FramingProblem problem = framing_problem(headers_, parser_->version);
  if (problem.status != 0) return fail(std::string(problem.message));
  keep_alive_ = wants_keep_alive(headers_, parser_->version) && !parser_->need_eof();
  if (parser_->is_done() && !unread().empty()) keep_alive_ = false;
  return state_ = parser_->is_done() ? State::kDone : State::kBody;
}

ResponseReader::State ResponseReader::read_body(base::FunctionRef<void(std::string_view)> on_body) {
  const auto [state, used] = parser_->put_body(unread(), on_body);
  consume(used);
  switch (state) {
    case BodyState::kMore:
      return state_;
    case BodyState::kDone:
      if (!unread().empty()) keep_alive_ = false;  // bytes that nobody asked for
      return state_ = State::kDone;
    case BodyState::kTooLarge:
      return fail("the response body is larger than the limit");
    case BodyState::kMalformed:
      break;
  }
  return fail("the response body is malformed");
}

ResponseReader::State ResponseReader::finish_at_eof() {
  if (state_ == State::kDone || state_ == State::kBad) return state_;
  if (state_ == State::kBody && parser_->need_eof()) return state_ = State::kDone;
  return fail(got_some_ ? "the server closed in the middle of its response"
                        : "the server closed without a response");
}

}  // namespace pelton::net
