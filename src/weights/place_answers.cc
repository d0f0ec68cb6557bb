#include "weights/place_answers.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "hub/hub_names.h"
#include "hub/hub_url.h"

namespace pelton::weights {
namespace {

constexpr int kRedirectsMax = 5;
constexpr std::chrono::milliseconds kWait{50};

Error unavailable(const Place& place, const std::string& what) {
  return Error{ErrorCode::kUnavailable, fmt::format("{}: {}", place.text, what)};
}

class WholeBody final : public hub::TransferSink {
 public:
  explicit WholeBody(size_t bytes_max) : bytes_max_(bytes_max) {}
  bool on_head(const hub::ResponseHead& head) override {
    head_ = head;
    return true;
  }
  bool on_body(std::string_view bytes) override {
    if (body_.size() + bytes.size() > bytes_max_) return false;
    body_ += bytes;
    return true;
  }
  const hub::ResponseHead& head() const { return head_; }
  std::string& body() { return body_; }

 private:
  const size_t bytes_max_;
  hub::ResponseHead head_;
  std::string body_;
};

}  // namespace

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

Result<hub::TransferRequest> redirected(const Place& place, const hub::TransferRequest& request,
                                        const hub::ResponseHead& head) {
  const std::string location(head.get("location"));
  if (place.s3) {
    const std::string_view region = head.get("x-amz-bucket-region");
    return unavailable(
        place,
        fmt::format("redirects ({}) {}; a signed request is not led to another host", head.status,
                    region.empty() ? "to " + hub::shown(location)
                                   : "as the bucket is in AWS_REGION=" + hub::shown(region)));
  }
  const Result<std::string> next = hub::resolve_location(request.url, location);
  if (!next.ok()) {
    return unavailable(place, fmt::format("redirects ({}) to {}, which {}", head.status,
                                          hub::shown(location), next.error().message));
  }
  TRY_ASSIGN(const hub::Origin from, hub::origin_of(request.url));
  TRY_ASSIGN(const hub::Origin to, hub::origin_of(*next));
  if (from.scheme == "https" && to.scheme != "https") {
    return unavailable(place, "redirects from https to " + hub::shown(*next));
  }
  hub::TransferRequest led = request;
  led.url = *next;
  if (from != to) led.token.clear();
  return led;
}

Error refusal(const Place& place, const hub::ResponseHead& head) {
  switch (head.status) {
    case 401:
    case 403:
      return unavailable(
          place, place.s3
                     ? fmt::format("refuses the request ({}): these AWS_* keys may not read it, "
                                   "or the clocks differ",
                                   head.status)
                     : fmt::format("refuses the key ({}): see --weights-key", head.status));
    case 404:
      return Error{ErrorCode::kNotFound, place.text + ": there is no such file (404)"};
    default:
      return unavailable(place, fmt::format("answers {}", head.status));
  }
}

Result<Manifest> fetch_manifest(const Place& origin, const PlaceAccess& access,
                                const hub::RetryOptions& retry, const base::Clock& clock,
                                base::FunctionRef<bool()> go_on) {
  hub::Transfers transfers({.connections = 1});
  // Who has not answered yet is not waited for as long as one that has.
  hub::RetryOptions first = retry;
  first.tries_max = std::min(first.tries_max, first.first_tries_max);
  hub::Retry tries(first);
  hub::TransferRequest request =
      request_to(origin, kManifestName, {}, access, "", clock.unix_ms() / 1000);
  for (int redirects = 0; redirects <= kRedirectsMax;) {
    WholeBody body(kManifestBytesMax);
    transfers.start(request, body);
    std::vector<hub::TransferEnd> ended;
    while (ended.empty()) {
      if (!go_on()) return Error{ErrorCode::kCancelled, "interrupted"};
      ended = transfers.wait(kWait);
    }
    const hub::TransferEnd& end = ended.front();
    const hub::ResponseHead& head = body.head();
    if (end.how == hub::TransferEnd::How::kStopped) {
      return unavailable(origin,
                         fmt::format("a manifest of more than {} bytes", kManifestBytesMax));
    }
    const bool failed = end.how == hub::TransferEnd::How::kFailed;
    if (!failed && head.status == 200) {
      Result<Manifest> manifest = parse_manifest(body.body());
      if (manifest.ok()) return manifest;
      return Error{manifest.error().code,
                   fmt::format("{}: {}", origin.text, manifest.error().message),
                   manifest.error().field};
    }
    if (!failed && is_redirect(head.status)) {
      TRY_ASSIGN(request, redirected(origin, request, head));
      ++redirects;
      continue;
    }
    if (!failed && !hub::worth_a_retry(head.status)) {
      Error error = refusal(origin, head);
      if (head.status == 404) error.message += fmt::format("; {} is looked for", kManifestName);
      return error;
    }
    const std::string why = failed ? fmt::format("{}: {}", origin.text, end.message)
                                   : fmt::format("{}: answers {}", origin.text, head.status);
    if (!tries.again(head, why, clock.now_ns())) return Error{ErrorCode::kUnavailable, why};
    while (clock.now_ns() < tries.not_before_ns()) {
      if (!go_on()) return Error{ErrorCode::kCancelled, "interrupted"};
      transfers.wait(kWait);
    }
    if (origin.s3) {  // signed anew: signatures age
      request = request_to(origin, kManifestName, {}, access, "", clock.unix_ms() / 1000);
    }
  }
  return unavailable(origin, "redirects too often");
}

}  // namespace pelton::weights
