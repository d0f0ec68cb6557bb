#include "net/http2_session.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <new>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nghttp2/nghttp2.h>

#include "base/check.h"
#include "net/http_framing.h"
#include "net/request_check.h"

namespace pelton::net {
namespace {

// A peer may send so much of a body before we have read any: of one stream, and of all together.
constexpr uint32_t kStreamWindow = 256 * 1024;
constexpr int32_t kConnectionWindow = 1 << 20;
// A header of more than so many times what is allowed is no longer looked at to be refused kindly.
constexpr size_t kFarBeyond = 4;

std::string_view text_of(const uint8_t* bytes, size_t count) {
  return {reinterpret_cast<const char*>(bytes), count};
}

// What HTTP/2 has frames for, and what belongs to one connection.
bool is_left_out(std::string_view name) {
  return is_framing_header(name) || equals_without_case(name, "Upgrade") ||
         equals_without_case(name, "Proxy-Connection");
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string header_value(std::string_view text) {
  std::string clean;
  append_header_text(clean, text);
  // Space around a value is none of it, and nghttp2 refuses it.
  const size_t begin = clean.find_first_not_of(" \t");
  if (begin == std::string::npos) return {};
  return clean.substr(begin, clean.find_last_not_of(" \t") - begin + 1);
}

// nghttp2 has checked that it is a number.
bool announces_more(const HttpRequest& request, size_t bytes_max) {
  const std::string_view length = request.headers.get("content-length");
  uint64_t bytes = 0;
  const auto [end, failure] = std::from_chars(length.data(), length.data() + length.size(), bytes);
  return failure == std::errc::result_out_of_range || bytes > bytes_max;
}

nghttp2_nv pair_of(std::string_view name, std::string_view value) {
  // nghttp2 copies both.
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
          reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
          NGHTTP2_NV_FLAG_NONE};
}

}  // namespace

// What nghttp2 calls. No exception may pass through it.
struct Http2Session::Callbacks {
  static Http2Session& self(void* user) { return *static_cast<Http2Session*>(user); }

  template <typename Work>
  static int guarded(const Work& work) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
  }

  // Of every frame, also of those that mean nothing.
  static int begin_frame(nghttp2_session* /*session*/, const nghttp2_frame_hd* /*head*/,
                         void* user) {
    self(user).count_frame();
    return 0;
  }

  static int begin_headers(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    return guarded([&] {
      self(user).streams_.try_emplace(frame->hd.stream_id);
      self(user).header_stream_ = frame->hd.stream_id;
      return 0;
    });
  }

  static int header(nghttp2_session* /*session*/, const nghttp2_frame* frame, const uint8_t* name,
                    size_t name_bytes, const uint8_t* value, size_t value_bytes, uint8_t /*flags*/,
                    void* user) {
    // Trailers are dropped.
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    return guarded([&]() -> int {
      const bool goes_on = self(user).add_header(frame->hd.stream_id, text_of(name, name_bytes),
                                                 text_of(value, value_bytes));
      return goes_on ? 0 : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    });
  }

  static int frame(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    return guarded([&] {
      Http2Session& session = self(user);
      const bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
      switch (frame->hd.type) {
        case NGHTTP2_HEADERS:
          if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
            session.end_header(frame->hd.stream_id, ends);
          } else if (ends) {
            session.end_request(frame->hd.stream_id);
          }
          break;
        case NGHTTP2_DATA:
          if (ends) {
            session.end_request(frame->hd.stream_id);
          }
          break;
        case NGHTTP2_RST_STREAM:
          if (Stream* const stream = session.find(frame->hd.stream_id)) stream->was_reset = true;
          session.count_reset();
          break;
        default:
          break;
      }
      return 0;
    });
  }

  static int invalid_frame(nghttp2_session* /*session*/, const nghttp2_frame* /*frame*/,
                           int /*error*/, void* user) {
    self(user).count_reset();
    return 0;
  }

  static int data(nghttp2_session* /*session*/, uint8_t /*flags*/, int32_t stream,
                  const uint8_t* bytes, size_t count, void* user) {
    return guarded([&] {
      self(user).add_body(stream, text_of(bytes, count));
      return 0;
    });
  }

  static int stream_close(nghttp2_session* /*session*/, int32_t stream, uint32_t error,
                          void* user) {
    return guarded([&] {
      self(user).close_stream(stream, error);
      return 0;
    });
  }

  // What an answer has to say next.
  static ssize_t read(nghttp2_session* /*session*/, int32_t id, uint8_t* buffer, size_t room,
                      uint32_t* flags, nghttp2_data_source* /*source*/, void* user) {
    Stream* const stream = self(user).find(id);
    if (stream == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    const size_t count = std::min(room, stream->out.size() - stream->out_begin);
    if (count == 0 && !stream->is_finished) {
      stream->is_waiting = true;
      return NGHTTP2_ERR_DEFERRED;
    }
    std::memcpy(buffer, stream->out.data() + stream->out_begin, count);
    stream->out_begin += count;
    stream->sent += count;
    self(user).unsent_bytes_ -= count;
    if (stream->out_begin == stream->out.size()) {
      stream->out.clear();
      stream->out_begin = 0;
      if (stream->is_finished) *flags |= NGHTTP2_DATA_FLAG_EOF;
    }
    self(user).count_something();
    return static_cast<ssize_t>(count);
  }

  static nghttp2_session* make(Http2Session* session) {
    nghttp2_session_callbacks* callbacks = nullptr;
    CHECK(nghttp2_session_callbacks_new(&callbacks) == 0);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, begin_headers);
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, begin_frame);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, invalid_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, stream_close);
    nghttp2_option* option = nullptr;
    CHECK(nghttp2_option_new(&option) == 0);
    // We count them ourselves, by what is answered.
    nghttp2_option_set_stream_reset_rate_limit(option, UINT64_MAX, UINT64_MAX);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_session* made = nullptr;
    CHECK(nghttp2_session_server_new2(&made, callbacks, session, option) == 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return made;
  }
};

Http2Session::Http2Session(const Limits& limits)
    : limits_(limits), session_(Callbacks::make(this)), resets_left_(limits.resets_in_advance) {
  const nghttp2_settings_entry settings[] = {
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, static_cast<uint32_t>(limits_.streams_max)},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindow},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE,
       static_cast<uint32_t>(std::min<size_t>(limits_.http.header_bytes_max, UINT32_MAX))}};
  CHECK(nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, std::size(settings)) == 0);
  CHECK(nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kConnectionWindow) ==
        0);
}

Http2Session::~Http2Session() {
  nghttp2_session_del(session_);
}

bool Http2Session::receive(std::string_view bytes) {
  if (is_broken_) return false;
  const ssize_t taken = nghttp2_session_mem_recv(
      session_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (taken == NGHTTP2_ERR_NOMEM) throw std::bad_alloc();
  if (taken < 0) is_broken_ = true;
  // Frames of kinds that nobody knows are not even reported.
  empty_bytes_ += bytes.size();
  if (empty_bytes_ > limits_.empty_bytes_max) calm_down();
  return !is_broken_;
}

std::vector<Http2Session::Event> Http2Session::take_events() {
  return std::exchange(events_, {});
}

Http2Session::Stream* Http2Session::find(int32_t stream) {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : &found->second;
}
const Http2Session::Stream* Http2Session::find(int32_t stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : &found->second;
}

// ---- requests

// False: so much that the rest is not even looked at.
bool Http2Session::add_header(int32_t id, std::string_view name, std::string_view value) {
  Stream* const stream = find(id);
  if (stream == nullptr) return false;
  // As RFC 9113 (6.5.2) counts: what it takes to keep one.
  stream->header_bytes += name.size() + value.size() + 32;
  ++stream->header_count;
  const HttpLimits& http = limits_.http;
  const bool is_too_much =
      stream->header_bytes > http.header_bytes_max || stream->header_count > http.header_count_max;
  if (is_too_much) {
    stream->refusal =
        HttpReject{431, "header_too_large",
                   fmt::format("the request header has more than {} bytes or {} lines",
                               http.header_bytes_max, http.header_count_max)};
    const bool is_far = stream->header_bytes > kFarBeyond * http.header_bytes_max ||
                        stream->header_count > kFarBeyond * http.header_count_max;
    if (is_far) count_reset();
    return !is_far;
  }
  if (name == ":method") {
    stream->method = value;
  } else if (name == ":path") {
    stream->target = value;
  } else if (name == ":authority") {
    stream->authority = value;
  } else if (name.empty() || name.front() != ':') {
    stream->request.headers.add(std::string(name), std::string(value));
  }
  return true;
}

void Http2Session::end_header(int32_t id, bool ends_stream) {
  header_stream_ = 0;
  count_something();
  Stream* const stream = find(id);
  if (stream == nullptr) return;
  stream->has_head = true;
  HttpRequest& request = stream->request;
  HttpHeaders headers;
  // A request has the host in one place, and a cookie may come in crumbs (RFC 9113, 8.2.3).
  std::string host = stream->authority;
  std::string cookies;
  bool hosts_differ = false;
  for (const auto& [name, value] : request.headers.fields()) {
    if (name == "host") {
      hosts_differ = hosts_differ || (!host.empty() && !equals_without_case(host, value));
      if (host.empty()) host = value;
    } else if (name == "cookie") {
      cookies += (cookies.empty() ? "" : "; ") + value;
    } else {
      headers.add(name, value);
    }
  }
  headers.add("host", host);
  if (!cookies.empty()) headers.add("cookie", cookies);
  request.headers = std::move(headers);
  if (!stream->refusal && (hosts_differ || host.empty())) {
    stream->refusal = HttpReject{400, "malformed_http",
                                 host.empty() ? "the pseudo-header ':authority' is missing"
                                              : "':authority' and the header 'host' differ"};
  }
  if (!stream->refusal) stream->refusal = complete_request(stream->method, stream->target, request);
  stream->is_head_request = stream->method == "HEAD";
  if (!stream->refusal && announces_more(request, limits_.http.body_bytes_max)) {
    stream->refusal = body_too_large(limits_.http.body_bytes_max);
  }
  if (ends_stream) return end_request(id);
  if (stream->refusal) return leave_body(id);
  events_.push_back({Event::Kind::kHead, id});
}

void Http2Session::end_request(int32_t id) {
  Stream* const stream = find(id);
  if (stream == nullptr || stream->is_complete) return;
  stream->is_complete = true;
  if (!stream->is_body_left) events_.push_back({Event::Kind::kRequest, id});
}

void Http2Session::add_body(int32_t id, std::string_view bytes) {
  count_something();
  Stream* const stream = find(id);
  if (stream == nullptr || stream->is_body_left) return;
  std::string& body = stream->request.body;
  if (body.size() + bytes.size() > limits_.http.body_bytes_max) {
    return refuse(id, body_too_large(limits_.http.body_bytes_max));
  }
  body += bytes;
  events_.push_back({Event::Kind::kBody, id});
}

const HttpRequest* Http2Session::head(int32_t id) const {
  const Stream* const stream = find(id);
  return stream == nullptr || !stream->has_head ? nullptr : &stream->request;
}

std::optional<Http2Session::Taken> Http2Session::take(int32_t id) {
  Stream* const stream = find(id);
  if (stream == nullptr || stream->is_taken) return std::nullopt;
  stream->is_taken = true;
  return Taken{std::exchange(stream->request, {}), std::move(stream->refusal)};
}

void Http2Session::leave_body(int32_t id) {
  Stream* const stream = find(id);
  if (stream == nullptr || stream->is_complete || stream->is_body_left) return;
  stream->is_body_left = true;
  std::string().swap(stream->request.body);
  events_.push_back({Event::Kind::kRequest, id});
}

void Http2Session::refuse(int32_t id, HttpReject refusal) {
  Stream* const stream = find(id);
  if (stream == nullptr || stream->is_taken) return;
  stream->refusal = std::move(refusal);
  leave_body(id);
}

size_t Http2Session::body_bytes(int32_t id) const {
  const Stream* const stream = find(id);
  return stream == nullptr ? 0 : stream->request.body.size();
}

size_t Http2Session::held_bytes() const {
  size_t bytes = 0;
  for (const auto& [id, stream] : streams_) bytes += stream.request.body.capacity();
  return bytes;
}

void Http2Session::close_stream(int32_t id, uint32_t error) {
  if (header_stream_ == id) header_stream_ = 0;
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  const Stream& stream = found->second;
  // What the peer itself has ended earns nothing, whatever code it gave.
  const bool is_whole = stream.is_answered && stream.is_finished && unsent(stream) == 0;
  if (is_whole && !stream.was_reset && error == NGHTTP2_NO_ERROR) {
    resets_left_ = std::min(resets_left_ + 1, limits_.resets_in_advance);
  }
  unsent_bytes_ -= unsent(stream);
  streams_.erase(found);
  events_.push_back({Event::Kind::kGone, id});
}

// ---- what a peer may cost

void Http2Session::count_reset() {
  if (--resets_left_ < 0) calm_down();
}

void Http2Session::count_frame() {
  if (++empty_frames_ > limits_.empty_frames_max) calm_down();
}

void Http2Session::count_something() {
  empty_frames_ = 0;
  empty_bytes_ = 0;
}

void Http2Session::calm_down() {
  if (std::exchange(is_broken_, true)) return;
  nghttp2_session_terminate_session(session_, NGHTTP2_ENHANCE_YOUR_CALM);
}

void Http2Session::tick(std::chrono::milliseconds passed) {
  regaining_ += limits_.resets_regained_s * passed.count();
  resets_left_ = static_cast<int>(
      std::min<int64_t>(resets_left_ + regaining_ / 1000, limits_.resets_in_advance));
  regaining_ %= 1000;
  // A peer that hears of an end before it has read the answer may take the answer for lost.
  early_before_.insert(early_before_.end(), early_.begin(), early_.end());
  early_.clear();
}

// ---- answers

void Http2Session::answer(int32_t id, int status, const HttpHeaders& headers,
                          std::string_view date) {
  Stream* const stream = find(id);
  if (stream == nullptr || stream->is_answered) return;
  stream->is_answered = true;
  std::vector<std::pair<std::string, std::string>> texts;
  texts.emplace_back(":status", std::to_string(status));
  texts.emplace_back("date", date);
  for (const auto& [name, value] : headers.fields()) {
    if (!is_left_out(name)) texts.emplace_back(lower_case(name), header_value(value));
  }
  std::vector<nghttp2_nv> pairs;
  for (const auto& [name, value] : texts) pairs.push_back(pair_of(name, value));
  const bool has_body = !stream->is_head_request && !has_no_body(status);
  if (!has_body) stream->is_finished = true;
  const nghttp2_data_provider body{.source = {}, .read_callback = Callbacks::read};
  const int error =
      nghttp2_submit_response(session_, id, pairs.data(), pairs.size(), has_body ? &body : nullptr);
  if (error == NGHTTP2_ERR_NOMEM) throw std::bad_alloc();
  if (!has_body && !stream->is_complete) early_.push_back(id);
}

void Http2Session::write(int32_t id, std::string_view bytes) {
  Stream* const stream = find(id);
  if (stream == nullptr || stream->is_finished || bytes.empty()) return;
  if (stream->out_begin > 0) {
    stream->out.erase(0, std::exchange(stream->out_begin, 0));
  }
  stream->out += bytes;
  unsent_bytes_ += bytes.size();
  resume(id, *stream);
}

void Http2Session::finish(int32_t id) {
  Stream* const stream = find(id);
  if (stream == nullptr || std::exchange(stream->is_finished, true)) return;
  if (!stream->is_complete) early_.push_back(id);
  resume(id, *stream);
}

void Http2Session::resume(int32_t id, Stream& stream) {
  if (!std::exchange(stream.is_waiting, false)) return;
  nghttp2_session_resume_data(session_, id);
}

void Http2Session::reset(int32_t id) {
  if (find(id) == nullptr) return;
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_INTERNAL_ERROR);
}

size_t Http2Session::unsent_bytes(int32_t id) const {
  const Stream* const stream = find(id);
  return stream == nullptr ? 0 : unsent(*stream);
}

uint64_t Http2Session::sent_bytes(int32_t id) const {
  const Stream* const stream = find(id);
  return stream == nullptr ? 0 : stream->sent;
}

std::vector<int32_t> Http2Session::unsent_streams() const {
  std::vector<int32_t> unsent;
  for (const auto& [id, stream] : streams_) {
    const bool must_end = stream.is_answered && stream.is_finished &&
                          nghttp2_session_get_stream_local_close(session_, id) == 0;
    if (this->unsent(stream) > 0 || must_end) unsent.push_back(id);
  }
  return unsent;
}

bool Http2Session::produce(std::string& out, size_t bytes) {
  const size_t before = out.size();
  has_more_ = true;
  while (out.size() - before < bytes) {
    const uint8_t* data = nullptr;
    const ssize_t count = nghttp2_session_mem_send(session_, &data);
    if (count == NGHTTP2_ERR_NOMEM) throw std::bad_alloc();
    if (count > 0) {
      out.append(reinterpret_cast<const char*>(data), static_cast<size_t>(count));
    } else if (!end_early()) {
      has_more_ = false;
      break;
    }
  }
  return out.size() > before;
}

// Of answers that were whole before their requests were: the peer need not say the rest. True:
// there is something to send.
bool Http2Session::end_early() {
  const size_t count = early_before_.size();
  std::erase_if(early_before_, [this](int32_t id) {
    const Stream* const stream = find(id);
    if (stream == nullptr || stream->is_complete) return true;
    if (nghttp2_session_get_stream_local_close(session_, id) != 1) return false;
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR);
    return true;
  });
  return early_before_.size() < count;
}

void Http2Session::send_continue(int32_t id) {
  if (find(id) == nullptr) return;
  const nghttp2_nv status = pair_of(":status", "100");
  nghttp2_submit_headers(session_, NGHTTP2_FLAG_NONE, id, nullptr, &status, 1, nullptr);
}

void Http2Session::announce_end() {
  nghttp2_submit_shutdown_notice(session_);
}

void Http2Session::go_away() {
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(session_), NGHTTP2_NO_ERROR,
                        nullptr, 0);
}

bool Http2Session::is_over() const {
  const bool reads = !is_broken_ && nghttp2_session_want_read(session_) != 0;
  return !reads && nghttp2_session_want_write(session_) == 0;
}

}  // namespace pelton::net
