#include "hub/hub_api.h"

#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "hub/hub_names.h"

namespace pelton::hub {
namespace {

constexpr size_t kListBytesMax = 64 << 20;
constexpr size_t kFilesMax = 100'000;
constexpr int64_t kFileBytesMax = int64_t{1} << 46;
constexpr int kRedirectsMax = 8;
constexpr std::chrono::milliseconds kWait{100};

// Keeps an answer's head and its first bytes.
class BoundedBody : public TransferSink {
 public:
  explicit BoundedBody(size_t bytes_max) : bytes_max_(bytes_max) {}
  bool on_head(const ResponseHead& head) override {
    head_ = head;
    return true;
  }
  bool on_body(std::string_view bytes) override {
    if (body_.size() + bytes.size() > bytes_max_) return false;
    body_ += bytes;
    return true;
  }
  ResponseHead& head() { return head_; }
  std::string& body() { return body_; }

 private:
  const size_t bytes_max_;
  ResponseHead head_;
  std::string body_;
};

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

Error bad_list(const std::string& what) {
  return Error{ErrorCode::kBadCheckpoint, "the hub's list of files: " + what};
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

Result<HubFile> parse_file(const Json& item) {
  HubFile file{.path = item.string("rfilename").value_or("")};
  TRY(check_file_path(file.path));
  file.size = item.integer("size");
  const Json* large = item.find("lfs");
  if (large != nullptr && large->is_object()) {
    file.sha256 = large->string("sha256").value_or(large->string("oid").value_or(""));
    if (large->integer("size")) file.size = large->integer("size");
    if (!is_sha256(file.sha256)) {
      return bad_list(fmt::format("{}: lfs.sha256 is {}", shown(file.path), shown(file.sha256)));
    }
  } else if (const std::string id = item.string("blobId").value_or(""); is_commit(id)) {
    file.git_id = id;
  }
  if (file.size && (*file.size < 0 || *file.size > kFileBytesMax)) {
    return bad_list(fmt::format("{}: size {} is out of range", shown(file.path), *file.size));
  }
  return file;
}

std::string unquoted_etag(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
    etag = etag.substr(1, etag.size() - 2);
  }
  return std::string(etag);
}

}  // namespace

Result<Revision> parse_revision(std::string_view text) {
  Result<Json> json = Json::parse(text);
  if (!json.ok()) return bad_list(json.error().message);
  Revision revision{.commit = json->string("sha").value_or("")};
  if (!is_commit(revision.commit)) {
    return bad_list(fmt::format("sha is {}, not a commit", shown(revision.commit)));
  }
  const Json* siblings = json->find("siblings");
  if (siblings == nullptr || !siblings->is_array()) return bad_list("siblings is missing");
  if (siblings->as_array().size() > kFilesMax) {
    return bad_list(
        fmt::format("{} files; at most {} are allowed", siblings->as_array().size(), kFilesMax));
  }
  for (const Json& item : siblings->as_array()) {
    TRY_ASSIGN(HubFile file, parse_file(item));
    revision.files.push_back(std::move(file));
  }
  return revision;
}

Result<Revision> HubApi::revision(const std::string& model, const std::string& name,
                                  KeepGoing keep_going) {
  TransferRequest request{
      .url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", access_.endpoint,
                         encode_path(model), encode_segment(name)),
      .token = access_.token};
  TRY_ASSIGN(const Answer answer, ask(std::move(request), keep_going));
  if (answer.head.status != 200) return refusal(model, answer.head);
  return parse_revision(answer.body);
}

Result<FileLocation> HubApi::locate(const std::string& model, const std::string& commit,
                                    const std::string& file, KeepGoing keep_going) {
  TransferRequest request{.method = TransferRequest::Method::kHead,
                          .url = fmt::format("{}/{}/resolve/{}/{}", access_.endpoint,
                                             encode_path(model), commit, encode_path(file)),
                          .token = access_.token};
  TRY_ASSIGN(const Answer answer, ask(std::move(request), keep_going));
  const ResponseHead& head = answer.head;
  FileLocation location{.url = answer.url, .with_token = answer.own_origin};
  if (is_redirect(head.status)) {
    TRY_ASSIGN(location.url, resolve_location(answer.url, std::string(head.get("location"))));
    location.with_token = false;
  } else if (head.status != 200) {
    return refusal(model, head);
  }
  location.etag =
      unquoted_etag(head.get(head.get("x-linked-etag").empty() ? "etag" : "x-linked-etag"));
  const std::optional<int64_t> size =
      number(head.get(head.get("x-linked-size").empty() ? "content-length" : "x-linked-size"));
  if (!is_blob_name(location.etag) || !size || *size > kFileBytesMax) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: the hub names no usable ETag and size ({}, {})", shown(file),
                             shown(location.etag), shown(head.get("content-length")))};
  }
  location.size = *size;
  return location;
}

// A redirect to another origin ends the walk: where it leads the token must not go, and of a HEAD
// request only the hub's own answer holds the file's identity.
Result<HubApi::Answer> HubApi::ask(TransferRequest request, KeepGoing keep_going) {
  TRY_ASSIGN(const Origin home, origin_of(access_.endpoint));
  for (int redirects = 0; redirects <= kRedirectsMax; ++redirects) {
    TRY_ASSIGN(Answer answer, ask_once(request, keep_going));
    if (!is_redirect(answer.head.status)) return answer;
    const std::string location(answer.head.get("location"));
    Result<std::string> next = resolve_location(request.url, location);
    if (!next.ok()) {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("{}: redirected to {}, which {}", request.url, shown(location),
                               next.error().message)};
    }
    TRY_ASSIGN(const Origin origin, origin_of(*next));
    if (home.scheme == "https" && origin.scheme != "https") {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("{}: redirected from https to {}", request.url, shown(*next))};
    }
    if (origin != home) {
      if (request.method == TransferRequest::Method::kHead) return answer;
      request.token.clear();
      answer.own_origin = false;
    }
    request.url = std::move(next).value();
  }
  return Error{ErrorCode::kUnavailable, fmt::format("{}: redirected too often", request.url)};
}

Result<HubApi::Answer> HubApi::ask_once(const TransferRequest& request, KeepGoing keep_going) {
  RetryOptions options = retry_;
  if (!heard_) options.tries_max = std::min(options.tries_max, options.first_tries_max);
  Retry retry(options);
  while (true) {
    BoundedBody sink(kListBytesMax);
    const int id = transfers_.start(request, sink);
    std::vector<TransferEnd> ended;
    while (ended.empty()) {
      if (!keep_going()) {
        transfers_.cancel(id);
        return Error{ErrorCode::kCancelled, "interrupted"};
      }
      ended = transfers_.wait(kWait);
    }
    const TransferEnd& end = ended.front();
    if (end.how == TransferEnd::How::kStopped) {
      return Error{ErrorCode::kBadCheckpoint,
                   fmt::format("{}: answers with more than {} bytes", request.url, kListBytesMax)};
    }
    const bool failed = end.how == TransferEnd::How::kFailed;
    heard_ = heard_ || !failed;
    if (!failed && !worth_a_retry(sink.head().status)) {
      return Answer{
          .head = std::move(sink.head()), .body = std::move(sink.body()), .url = request.url};
    }
    const std::string why =
        failed ? fmt::format("{}: {}", request.url, end.message)
               : fmt::format("{}: answers with status {}", request.url, sink.head().status);
    if (!retry.again(sink.head(), why, clock_.now_ns())) {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("{} (tried {} times){}", why, options.tries_max,
                               heard_ ? ""
                                      : "; is there a network, and is a proxy needed "
                                        "(https_proxy)?")};
    }
    while (clock_.now_ns() < retry.not_before_ns()) {
      if (!keep_going()) return Error{ErrorCode::kCancelled, "interrupted"};
      transfers_.wait(kWait);
    }
  }
}

Error HubApi::refusal(const std::string& model, const ResponseHead& head) const {
  const std::string_view reason = head.get("x-error-code");
  const auto error = [](std::string message) {
    return Error{ErrorCode::kNotFound, std::move(message), "MODEL"};
  };
  if (reason == "GatedRepo" || head.status == 403) {
    return error(
        fmt::format("{0} is gated or closed to this token: ask for access at {1}/{0} "
                    "with your account, and set HF_TOKEN to a token of it that may read",
                    model, access_.endpoint));
  }
  if (reason == "RevisionNotFound") {
    return error(fmt::format("{} has no such revision", model));
  }
  if (head.status == 401 && access_.token.empty()) {
    return error(
        fmt::format("{0} does not exist or is private: check the name; if it is private, "
                    "set HF_TOKEN to a token that may read it ({1}/settings/tokens)",
                    model, access_.endpoint));
  }
  if (head.status == 401) {
    return error(
        fmt::format("the hub does not accept the token, or {} does not exist; make a "
                    "token at {}/settings/tokens and set HF_TOKEN",
                    model, access_.endpoint));
  }
  if (head.status == 404 || head.status == 410) {
    return error(fmt::format("{} has no such model, revision or file: {} (status {})",
                             access_.endpoint, model, head.status));
  }
  return Error{ErrorCode::kUnavailable,
               fmt::format("{} answers with status {} for {} {}", access_.endpoint, head.status,
                           model, shown(head.get("x-error-message")))};
}

}  // namespace pelton::hub
