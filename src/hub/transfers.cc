#include "hub/transfers.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include <curl/curl.h>
#include <fmt/format.h>

#include "base/check.h"

namespace pelton::hub {
namespace {

constexpr size_t kHeadBytesMax = 256 * 1024;

// libcurl wants to be started before threads use it, once in a process.
void start_library() {
  static std::once_flag once;
  std::call_once(once, [] { CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK); });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && static_cast<unsigned char>(text.front()) <= ' ') text.remove_prefix(1);
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

struct Transfers::Transfer {
  int id = 0;
  TransferSink* sink = nullptr;
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  ResponseHead head;
  size_t head_bytes = 0;
  bool head_done = false;
  bool stopped = false;
  char message[CURL_ERROR_SIZE] = "";

  ~Transfer() {
    if (easy != nullptr) curl_easy_cleanup(easy);
    curl_slist_free_all(headers);
  }

  static size_t on_header(char* data, size_t, size_t size, void* self) {
    return static_cast<Transfer*>(self)->header_line({data, size}) ? size : 0;
  }
  static size_t on_bytes(char* data, size_t, size_t size, void* self) {
    Transfer* transfer = static_cast<Transfer*>(self);
    if (transfer->sink->on_body({data, size})) return size;
    transfer->stopped = true;
    return CURL_WRITEFUNC_ERROR;
  }
  bool header_line(std::string_view line);
};

// A status line begins a head (an interim one may have come before), an empty line ends it.
bool Transfers::Transfer::header_line(std::string_view line) {
  if (head_done) return true;  // a trailer: of no interest
  head_bytes += line.size();
  if (head_bytes > kHeadBytesMax) return false;
  if (line.starts_with("HTTP/")) {
    head = {};
    return true;
  }
  const std::string_view text = trimmed(line);
  if (!text.empty()) {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) return true;
    std::string name(trimmed(text.substr(0, colon)));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    head.headers.emplace(std::move(name), trimmed(text.substr(colon + 1)));
    return true;
  }
  long status = 0;
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  if (status < 200) return true;
  head.status = static_cast<int>(status);
  head_done = true;
  if (sink->on_head(head)) return true;
  stopped = true;
  return false;
}

struct Transfers::Multi {
  CURLM* handle = curl_multi_init();
  std::map<int, std::unique_ptr<Transfer>> transfers;

  ~Multi() {
    for (const auto& [id, transfer] : transfers) {
      curl_multi_remove_handle(handle, transfer->easy);
    }
    transfers.clear();
    curl_multi_cleanup(handle);
  }
};

Transfers::Transfers(const Options& options) : options_(options) {
  start_library();
  multi_ = std::make_unique<Multi>();
  CHECK(multi_->handle != nullptr);
  curl_multi_setopt(multi_->handle, CURLMOPT_MAXCONNECTS, static_cast<long>(options.connections));
}

Transfers::~Transfers() = default;

int Transfers::start(const TransferRequest& request, TransferSink& sink) {
  auto transfer = std::make_unique<Transfer>();
  transfer->id = next_id_++;
  transfer->sink = &sink;
  CURL* easy = transfer->easy = curl_easy_init();
  CHECK(easy != nullptr);
  const auto set = [&](CURLoption option, auto value) {
    CHECK(curl_easy_setopt(easy, option, value) == CURLE_OK);
  };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_FOLLOWLOCATION, 0L);
  // One stream a connection: several connections are the point of several ranges.
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_USERAGENT, "pelton");
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_BUFFERSIZE, 256L * 1024);
  set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(options_.connect_time_max.count()));
  set(CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(options_.least_bytes_per_s));
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.stall_time_max.count()));
  set(CURLOPT_ERRORBUFFER, transfer->message);
  set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
  set(CURLOPT_HEADERDATA, transfer.get());
  set(CURLOPT_WRITEFUNCTION, &Transfer::on_bytes);
  set(CURLOPT_WRITEDATA, transfer.get());
  set(CURLOPT_PRIVATE, transfer.get());
  if (request.method == TransferRequest::Method::kHead) set(CURLOPT_NOBODY, 1L);
  if (request.range) {
    set(CURLOPT_RANGE, fmt::format("{}-{}", request.range->begin, request.range->end - 1).c_str());
  }
  // Sizes and ranges are those of the file, not of something packed.
  transfer->headers = curl_slist_append(nullptr, "Accept-Encoding: identity");
  if (!request.token.empty()) {
    transfer->headers =
        curl_slist_append(transfer->headers, ("Authorization: Bearer " + request.token).c_str());
  }
  for (const std::string& header : request.headers) {
    transfer->headers = curl_slist_append(transfer->headers, header.c_str());
  }
  CHECK(transfer->headers != nullptr);
  set(CURLOPT_HTTPHEADER, transfer->headers);
  CHECK(curl_multi_add_handle(multi_->handle, easy) == CURLM_OK);
  const int id = transfer->id;
  multi_->transfers.emplace(id, std::move(transfer));
  return id;
}

void Transfers::cancel(int id) {
  const auto found = multi_->transfers.find(id);
  if (found == multi_->transfers.end()) return;
  curl_multi_remove_handle(multi_->handle, found->second->easy);
  multi_->transfers.erase(found);
}

int Transfers::running() const {
  return static_cast<int>(multi_->transfers.size());
}

std::vector<TransferEnd> Transfers::wait(std::chrono::milliseconds limit) {
  int active = 0;
  curl_multi_perform(multi_->handle, &active);
  if (active == static_cast<int>(multi_->transfers.size())) {
    curl_multi_poll(multi_->handle, nullptr, 0, static_cast<int>(limit.count()), nullptr);
    curl_multi_perform(multi_->handle, &active);
  }
  std::vector<TransferEnd> ended;
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_->handle, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    Transfer* transfer = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
    TransferEnd end{.id = transfer->id};
    if (transfer->stopped) {
      end.how = TransferEnd::How::kStopped;
    } else if (code != CURLE_OK) {
      end.how = TransferEnd::How::kFailed;
      end.message = transfer->message[0] != '\0' ? transfer->message : curl_easy_strerror(code);
    }
    ended.push_back(std::move(end));
  }
  for (const TransferEnd& end : ended) cancel(end.id);
  return ended;
}

}  // namespace pelton::hub
