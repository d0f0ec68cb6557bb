#include "pelton_client.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <mutex>
#include <thread>

#include <boost/json/src.hpp>
#include <curl/curl.h>

namespace pelton::client {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirstWait{500};
constexpr std::chrono::milliseconds kWaitMax{30'000};

// Members that are not there, or of another type, are empty.
const json::value* member(const json::value* from, std::string_view name) {
  const json::object* const object = from == nullptr ? nullptr : from->if_object();
  return object == nullptr ? nullptr : object->if_contains(name);
}
const json::value* first(const json::value* from) {
  const json::array* const array = from == nullptr ? nullptr : from->if_array();
  return array == nullptr || array->empty() ? nullptr : &array->front();
}
std::string text_of(const json::value* value) {
  const json::string* const text = value == nullptr ? nullptr : value->if_string();
  return text == nullptr ? std::string() : std::string(text->data(), text->size());
}
int64_t integer_of(const json::value* value) {
  const int64_t* const number = value == nullptr ? nullptr : value->if_int64();
  return number == nullptr ? 0 : *number;
}

json::value parsed(std::string_view text, std::string_view what) {
  json::error_code failed;
  json::value value = json::parse(text, failed);
  if (failed) throw Error(std::string(what) + " is no JSON: " + failed.message(), 0);
  return value;
}

// {"error": {"message", "code", "param"}}, or whatever a proxy says.
Error refused(int status, std::string_view body) {
  json::error_code failed;
  const json::value value = json::parse(body, failed);
  const json::value* const error = failed ? nullptr : member(&value, "error");
  std::string message = text_of(member(error, "message"));
  if (message.empty()) message = text_of(error);
  if (message.empty()) message = body.substr(0, 200);
  return {"the server answered " + std::to_string(status) + ": " + message, status,
          text_of(member(error, "code")), text_of(member(error, "param"))};
}

Usage usage_of(const json::value* usage) {
  return {
      .prompt_tokens = integer_of(member(usage, "prompt_tokens")),
      .completion_tokens = integer_of(member(usage, "completion_tokens")),
      .cached_tokens = integer_of(member(member(usage, "prompt_tokens_details"), "cached_tokens"))};
}

// Of a message, whole; or of a delta, added to what came before by their indices.
void add_calls(const json::value* calls, std::vector<ToolCall>& into) {
  constexpr size_t kCallsMax = 1024;
  const json::array* const array = calls == nullptr ? nullptr : calls->if_array();
  if (array == nullptr) return;
  for (const json::value& call : *array) {
    const json::value* const index = member(&call, "index");
    const size_t at = index == nullptr ? into.size() : static_cast<size_t>(integer_of(index));
    if (at >= kCallsMax) throw Error("a tool call with an index that is none", 0);
    if (at >= into.size()) into.resize(at + 1);
    const json::value* const function = member(&call, "function");
    into[at].id += text_of(member(&call, "id"));
    into[at].name += text_of(member(function, "name"));
    into[at].arguments += text_of(member(function, "arguments"));
  }
}

json::value message_of(const Message& message) {
  json::object object{{"role", message.role}, {"content", message.content}};
  if (!message.tool_call_id.empty()) object["tool_call_id"] = message.tool_call_id;
  if (message.tool_calls.empty()) return object;
  json::array calls;
  for (const ToolCall& call : message.tool_calls) {
    calls.push_back({{"id", call.id},
                     {"type", "function"},
                     {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  object["tool_calls"] = std::move(calls);
  return object;
}

std::string chat_body(const ChatRequest& request, const std::string& model, bool streams) {
  json::object body;
  if (!model.empty()) body["model"] = model;
  json::array messages;
  for (const Message& message : request.messages) messages.push_back(message_of(message));
  body["messages"] = std::move(messages);
  if (request.max_tokens) body["max_completion_tokens"] = *request.max_tokens;
  if (request.temperature) body["temperature"] = *request.temperature;
  if (request.top_p) body["top_p"] = *request.top_p;
  if (request.seed) body["seed"] = *request.seed;
  if (!request.stop.empty()) body["stop"] = json::array(request.stop.begin(), request.stop.end());
  if (!request.more.empty()) {
    const json::value more = parsed(request.more, "ChatRequest::more");
    if (!more.is_object()) throw Error("ChatRequest::more is no JSON object", 0);
    for (const auto& [key, value] : more.as_object()) body[key] = value;
  }
  body["stream"] = streams;
  if (streams) body["stream_options"] = {{"include_usage", true}};
  return json::serialize(body);
}

std::string chain_body(std::string_view input, bool streams) {
  const json::value value = parsed(input, "the chain's input");
  if (!value.is_object()) throw Error("the chain's input is no JSON object", 0);
  return json::serialize(json::object{{"input", value}, {"stream", streams}});
}

// Server-sent events of whatever pieces come: lines end by LF, CR or CRLF, an empty one ends an
// event (the specification's "event stream interpretation"; ids and retry times are not used).
class EventReader {
 public:
  using OnEvent = std::function<bool(std::string_view event, std::string_view data)>;

  EventReader(size_t bytes_max, OnEvent on_event)
      : bytes_max_(bytes_max), on_event_(std::move(on_event)) {}

  // False: the caller wants no more.
  bool add(std::string_view piece) {
    for (const char c : piece) {
      const bool ends_pair = std::exchange(after_return_, false) && c == '\n';
      if (ends_pair) continue;
      if (c == '\r' || c == '\n') {
        after_return_ = c == '\r';
        if (!end_line()) return false;
        continue;
      }
      if (line_.size() + data_.size() >= bytes_max_) throw Error("an event is too large", 0);
      line_ += c;
    }
    return true;
  }

 private:
  bool end_line() {
    const std::string line = std::exchange(line_, {});
    if (!line.empty()) {
      const size_t colon = line.find(':');
      std::string_view value = colon == std::string::npos
                                   ? std::string_view()
                                   : std::string_view(line).substr(colon + 1);
      if (value.starts_with(' ')) value.remove_prefix(1);
      const std::string_view field = std::string_view(line).substr(0, colon);
      if (field == "event") event_ = value;
      if (field != "data") return true;
      if (has_data_) data_ += '\n';
      data_ += value;
      has_data_ = true;
      return true;
    }
    const std::string event = std::exchange(event_, {});
    const std::string data = std::exchange(data_, {});
    return !std::exchange(has_data_, false) || on_event_(event, data);
  }

  const size_t bytes_max_;
  const OnEvent on_event_;
  std::string line_;
  std::string event_;
  std::string data_;
  bool has_data_ = false;
  bool after_return_ = false;
};

struct Response {
  int status = 0;
  std::string body;  // empty where a reader took it
  std::vector<std::string> warnings;
  std::optional<std::chrono::milliseconds> retry_after;
  bool was_ended = false;  // by the reader
};

struct Call {
  std::string method;
  std::string path;
  std::string body;
  // Of an answer of 200, its bytes as they come. False ends it. Null: they are kept.
  std::function<bool(std::string_view piece)> reader;
};

// What libcurl's callbacks see of one attempt. No exception passes through libcurl.
struct Transfer {
  CURL* handle = nullptr;
  const Call* call = nullptr;
  size_t bytes_max = 0;
  Response response = {};
  std::exception_ptr thrown = {};
  bool is_too_large = false;
};

size_t on_body(char* data, size_t size, size_t count, void* into) {
  Transfer& transfer = *static_cast<Transfer*>(into);
  const std::string_view piece(data, size * count);
  long status = 0;
  curl_easy_getinfo(transfer.handle, CURLINFO_RESPONSE_CODE, &status);
  try {
    if (status == 200 && transfer.call->reader) {
      if (transfer.call->reader(piece)) return piece.size();
      transfer.response.was_ended = true;
      return 0;
    }
    if (transfer.response.body.size() + piece.size() > transfer.bytes_max) {
      transfer.is_too_large = true;
      return 0;
    }
    transfer.response.body += piece;
    return piece.size();
  } catch (...) {
    transfer.thrown = std::current_exception();
    return 0;
  }
}

bool has_name(std::string_view line, std::string_view name) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; };
  return line.size() > name.size() && line[name.size()] == ':' &&
         std::equal(name.begin(), name.end(), line.begin(),
                    [&](char n, char l) { return same(l, n); });
}

size_t on_header(char* data, size_t size, size_t count, void* into) {
  Transfer& transfer = *static_cast<Transfer*>(into);
  const std::string_view line(data, size * count);
  const auto value = [&](std::string_view name) {
    std::string_view text = line.substr(name.size() + 1);
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    while (!text.empty() && (text.back() == '\r' || text.back() == '\n')) text.remove_suffix(1);
    return text;
  };
  constexpr size_t kWarningsMax = 64;
  try {
    if (line.starts_with("HTTP/")) transfer.response = {};  // behind a 100
    if (has_name(line, "x-pelton-warning") && transfer.response.warnings.size() < kWarningsMax) {
      transfer.response.warnings.emplace_back(value("x-pelton-warning"));
    }
    if (has_name(line, "retry-after")) {
      const std::string_view text = value("retry-after");
      int seconds = 0;
      const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), seconds);
      constexpr int kSecondsMax = 86'400;
      if (failed == std::errc() && seconds >= 0 && seconds <= kSecondsMax) {
        transfer.response.retry_after = std::chrono::seconds(seconds);
      }
    }
  } catch (...) {
    transfer.thrown = std::current_exception();
    return 0;
  }
  return line.size();
}

class Headers {
 public:
  Headers() = default;
  Headers(const Headers&) = delete;
  Headers& operator=(const Headers&) = delete;
  ~Headers() { curl_slist_free_all(list_); }
  void add(const std::string& line) {
    curl_slist* const longer = curl_slist_append(list_, line.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    list_ = longer;
  }
  curl_slist* list() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

bool may_retry(int status) {
  return status == 429 || status == 503;
}

}  // namespace

// Handles that are idle, with their connections.
class Client::Connections {
 public:
  explicit Connections(Options options) : options_(std::move(options)) {
    static const CURLcode kReady = curl_global_init(CURL_GLOBAL_DEFAULT);
    if (kReady != CURLE_OK) throw Error(curl_easy_strerror(kReady), 0);
    while (options_.url.ends_with('/')) options_.url.pop_back();
    const bool is_http =
        options_.url.starts_with("http://") || options_.url.starts_with("https://");
    if (!is_http) throw Error("Options::url begins with neither http:// nor https://", 0);
    for (const char c : options_.api_key) {
      if (c < ' ') throw Error("Options::api_key has a control character", 0);
    }
  }
  ~Connections() {
    for (CURL* const handle : idle_) curl_easy_cleanup(handle);
  }
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  const Options& options() const { return options_; }

  // A whole call, retries included. Errors: also of a status that is not 200.
  Response done(const Call& call) {
    const Clock::time_point deadline = Clock::now() + options_.timeout;
    std::chrono::milliseconds wait = kFirstWait;
    for (int left = options_.retries;; --left) {
      std::optional<Error> unreached;
      Response response = attempt(call, deadline, unreached);
      if (!unreached && response.status == 200) return response;
      if (!unreached && !may_retry(response.status)) throw refused(response.status, response.body);
      const std::chrono::milliseconds pause = response.retry_after.value_or(wait);
      if (left <= 0 || Clock::now() + pause >= deadline) {
        throw unreached ? *unreached : refused(response.status, response.body);
      }
      std::this_thread::sleep_for(pause);
      wait = std::min(wait * 2, kWaitMax);
    }
  }

 private:
  CURL* taken() {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      CURL* const handle = idle_.back();
      idle_.pop_back();
      return handle;
    }
    CURL* const handle = curl_easy_init();
    if (handle == nullptr) throw std::bad_alloc();
    return handle;
  }
  void given_back(CURL* handle) noexcept {
    std::lock_guard lock(mutex_);
    constexpr size_t kIdleMax = 64;
    try {
      if (idle_.size() < kIdleMax) return idle_.push_back(handle);
    } catch (...) {  // no memory to keep it
    }
    curl_easy_cleanup(handle);
  }

  void set_up(CURL* handle, const Call& call, const Headers& headers, Transfer& transfer,
              long left_ms) const {
    curl_easy_reset(handle);  // keeps the connections
    const std::string url = options_.url + call.path;
    curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
    curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.list());
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, left_ms);
    const auto connect_ms = std::max<int64_t>(options_.connect_timeout.count(), 1);
    curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS,
                     static_cast<long>(std::min<int64_t>(connect_ms, left_ms)));
    if (!options_.ca_file.empty())
      curl_easy_setopt(handle, CURLOPT_CAINFO, options_.ca_file.c_str());
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
    curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(handle, CURLOPT_HEADERDATA, &transfer);
    if (call.method != "POST") return;
    curl_easy_setopt(handle, CURLOPT_POST, 1L);
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, call.body.data());
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE,
                     static_cast<curl_off_t>(call.body.size()));
  }

  // `unreached`: no server, and nothing was sent or nothing came: it may be tried again.
  Response attempt(const Call& call, Clock::time_point deadline, std::optional<Error>& unreached) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const long left_ms = static_cast<long>(std::max<int64_t>(left, 1));
    Headers headers;
    headers.add("Content-Type: application/json");
    headers.add("Expect:");
    headers.add("x-request-timeout-ms: " + std::to_string(left_ms));
    if (!options_.api_key.empty()) headers.add("Authorization: Bearer " + options_.api_key);
    CURL* const handle = taken();
    Transfer transfer{.handle = handle, .call = &call, .bytes_max = options_.answer_bytes_max};
    set_up(handle, call, headers, transfer, left_ms);
    const CURLcode how = curl_easy_perform(handle);
    long status = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    given_back(handle);
    transfer.response.status = static_cast<int>(status);
    if (transfer.thrown) std::rethrow_exception(transfer.thrown);
    if (how == CURLE_OK || transfer.response.was_ended) return std::move(transfer.response);
    if (transfer.is_too_large) throw Error("the answer is too large", 0);
    Error broken(std::string(curl_easy_strerror(how)) + ": " + options_.url + call.path, 0);
    if (how != CURLE_COULDNT_CONNECT && how != CURLE_COULDNT_RESOLVE_HOST) throw broken;
    unreached = std::move(broken);
    return {};
  }

  Options options_;
  std::mutex mutex_;
  std::vector<CURL*> idle_;
};

Client::Client(Options options) : connections_(std::make_unique<Connections>(std::move(options))) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

namespace {

Answer answer_of(const json::value& body) {
  const json::value* const choice = first(member(&body, "choices"));
  const json::value* const message = member(choice, "message");
  if (message == nullptr) throw Error("the answer has no choice", 0);
  Answer answer{.id = text_of(member(&body, "id")),
                .model = text_of(member(&body, "model")),
                .text = text_of(member(message, "content")),
                .reasoning = text_of(member(message, "reasoning_content")),
                .tool_calls = {},
                .finish_reason = text_of(member(choice, "finish_reason")),
                .usage = usage_of(member(&body, "usage")),
                .warnings = {}};
  add_calls(member(message, "tool_calls"), answer.tool_calls);
  return answer;
}

// Adds one event of a stream.
Delta add_chunk(const json::value& chunk, Answer& answer, std::string& text,
                std::string& reasoning) {
  if (const json::value* const error = member(&chunk, "error")) {
    throw Error("the stream ended with an error: " + text_of(member(error, "message")), 0,
                text_of(member(error, "code")), text_of(member(error, "param")));
  }
  if (answer.id.empty()) answer.id = text_of(member(&chunk, "id"));
  if (answer.model.empty()) answer.model = text_of(member(&chunk, "model"));
  const json::value* const usage = member(&chunk, "usage");
  if (usage != nullptr && usage->is_object()) answer.usage = usage_of(usage);
  const json::value* const choice = first(member(&chunk, "choices"));
  const json::value* const delta = member(choice, "delta");
  text = text_of(member(delta, "content"));
  reasoning = text_of(member(delta, "reasoning_content"));
  add_calls(member(delta, "tool_calls"), answer.tool_calls);
  answer.text += text;
  answer.reasoning += reasoning;
  const std::string reason = text_of(member(choice, "finish_reason"));
  if (!reason.empty()) answer.finish_reason = reason;
  return {.text = text, .reasoning = reasoning};
}

// As it stands in a path.
std::string escaped(std::string_view name) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    if (is_plain) {
      text += c;
    } else {
      text += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return text;
}

ChainRun run_of(std::string body) {
  const json::value value = parsed(body, "the answer");
  const json::value* const output = member(&value, "output");
  if (output == nullptr) throw Error("the answer has no output", 0);
  return {.output = json::serialize(*output), .body = std::move(body)};
}

}  // namespace

Answer Client::chat(const ChatRequest& request) {
  const std::string& model = request.model.empty() ? connections_->options().model : request.model;
  const Response response = connections_->done({.method = "POST",
                                                .path = "/v1/chat/completions",
                                                .body = chat_body(request, model, false),
                                                .reader = nullptr});
  Answer answer = answer_of(parsed(response.body, "the answer"));
  answer.warnings = response.warnings;
  return answer;
}

Answer Client::stream(const ChatRequest& request,
                      const std::function<bool(const Delta&)>& on_delta) {
  const std::string& model = request.model.empty() ? connections_->options().model : request.model;
  Answer answer;
  bool is_whole = false;
  EventReader events(
      connections_->options().answer_bytes_max, [&](std::string_view, std::string_view data) {
        if (data == "[DONE]") return is_whole = true;
        std::string text;
        std::string reasoning;
        const Delta delta = add_chunk(parsed(data, "an event"), answer, text, reasoning);
        return (delta.text.empty() && delta.reasoning.empty()) || on_delta(delta);
      });
  const Response response =
      connections_->done({.method = "POST",
                          .path = "/v1/chat/completions",
                          .body = chat_body(request, model, true),
                          .reader = [&](std::string_view piece) { return events.add(piece); }});
  if (!is_whole && !response.was_ended) throw Error("the stream broke off", 0);
  if (response.was_ended) answer.finish_reason.clear();
  answer.warnings = response.warnings;
  return answer;
}

ChainRun Client::chain(std::string_view name, std::string_view input) {
  Response response = connections_->done({.method = "POST",
                                          .path = "/v1/chains/" + escaped(name),
                                          .body = chain_body(input, false),
                                          .reader = nullptr});
  return run_of(std::move(response.body));
}

ChainRun Client::chain(std::string_view name, std::string_view input,
                       const std::function<bool(std::string_view, std::string_view)>& on_event) {
  std::string done;
  EventReader events(connections_->options().answer_bytes_max,
                     [&](std::string_view event, std::string_view data) {
                       if (data == "[DONE]") return true;
                       if (event == "run.done") done = data;
                       if (event == "error") throw refused(0, data);
                       return on_event(event, data);
                     });
  const Response response =
      connections_->done({.method = "POST",
                          .path = "/v1/chains/" + escaped(name),
                          .body = chain_body(input, true),
                          .reader = [&](std::string_view piece) { return events.add(piece); }});
  if (done.empty() && response.was_ended) return {};
  if (done.empty()) throw Error("the stream broke off", 0);
  return run_of(std::move(done));
}

std::vector<std::string> Client::models() {
  const Response response =
      connections_->done({.method = "GET", .path = "/v1/models", .body = {}, .reader = nullptr});
  const json::value body = parsed(response.body, "the answer");
  const json::value* const data = member(&body, "data");
  std::vector<std::string> names;
  if (data == nullptr || !data->is_array()) throw Error("the answer has no list of models", 0);
  for (const json::value& model : data->as_array()) names.push_back(text_of(member(&model, "id")));
  return names;
}

}  // namespace pelton::client
