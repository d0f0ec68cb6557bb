#include "cluster/kubernetes_api.h"

#include <algorithm>
#include <charconv>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "cluster/kubernetes_objects.h"

namespace pelton::cluster {
namespace {

constexpr size_t kTokenBytesMax = size_t{64} << 10;
constexpr size_t kAnswerBytesMax = size_t{32} << 20;
constexpr int kUnauthorized = 401;
constexpr std::chrono::milliseconds kTokenAgain{100};
constexpr int kRetryAfterMax_s = 60;

std::chrono::seconds retry_after(const net::HttpHeaders& headers) {
  const std::string_view text = headers.get("Retry-After");
  int seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size()) return std::chrono::seconds(0);
  return std::chrono::seconds(std::clamp(seconds, 0, kRetryAfterMax_s));
}

}  // namespace

KubernetesApi::KubernetesApi(Options options)
    : options_(std::move(options)), client_({.threads = 1, .trust = options_.trust}) {}

Result<net::HttpCall> KubernetesApi::call(const std::string& method,
                                          const std::string& target) const {
  TRY_ASSIGN(net::HttpCall call, net::make_http_call(method, options_.api + target));
  call.headers.add("Accept", "application/json");
  if (options_.token_file.empty()) return call;
  TRY_ASSIGN(std::string token, base::read_file(options_.token_file, kTokenBytesMax));
  while (!token.empty() && (token.back() == '\n' || token.back() == ' ')) token.pop_back();
  call.headers.add("Authorization", "Bearer " + token);
  return call;
}

Result<KubernetesApi::Answer> KubernetesApi::run(const std::string& method,
                                                 const std::string& target, const char* type,
                                                 const std::string& body) {
  for (bool is_second = false;; is_second = true) {
    TRY_ASSIGN(net::HttpCall asked, call(method, target));
    if (type != nullptr) asked.headers.add("Content-Type", type);
    asked.body = body;
    asked.whole_time_max = options_.time_max;
    asked.body_bytes_max = kAnswerBytesMax;
    TRY_ASSIGN(net::HttpResponse answer, net::http_fetch(client_, std::move(asked)));
    // A token that was replaced between our reading it and the server's.
    if (answer.status == kUnauthorized && !is_second && !options_.token_file.empty()) {
      std::this_thread::sleep_for(kTokenAgain);
      continue;
    }
    return Answer{.status = answer.status,
                  .body = std::move(answer.body),
                  .retry_after = retry_after(answer.headers)};
  }
}

Result<KubernetesApi::Answer> KubernetesApi::get(const std::string& target) {
  return run("GET", target, nullptr, {});
}

Result<KubernetesApi::Answer> KubernetesApi::post(const std::string& target, std::string json) {
  return run("POST", target, "application/json", json);
}

Result<KubernetesApi::Answer> KubernetesApi::merge_patch(const std::string& target,
                                                         std::string json) {
  return run("PATCH", target, "application/merge-patch+json", json);
}

Error kubernetes_error(const KubernetesApi::Answer& answer) {
  const std::string why = kubernetes_message(answer.body);
  constexpr int kNotThere = 404;
  return {answer.status == kNotThere ? ErrorCode::kNotFound : ErrorCode::kIo,
          fmt::format("the API server answers {}{}{}", answer.status, why.empty() ? "" : ": ", why),
          {}};
}

}  // namespace pelton::cluster
