// Kubernetes' API server: one call, waited for, or watched. The token is read again for every call,
// as it rotates; one that the server no longer takes (401) is read once more after a moment. A call
// is bounded in time and in what it may bring. Any thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/result.h"
#include "net/http_client.h"
#include "net/tls_trust.h"

namespace pelton::cluster {

class KubernetesApi {
 public:
  struct Options {
    std::string api;                             // http://HOST:PORT or https
    std::string token_file;                      // empty: none
    std::shared_ptr<const net::TlsTrust> trust;  // null: what the system trusts
    std::chrono::milliseconds time_max{10'000};  // of a call that is no watch
  };
  explicit KubernetesApi(Options options);

  struct Answer {
    int status = 200;
    std::string body;
    std::chrono::seconds retry_after{0};  // of 429 and 503, as the server asks
  };
  // `target`: the path with its query. Errors: kIo, kUnavailable, kDeadline; every status is an
  // answer.
  Result<Answer> get(const std::string& target);
  Result<Answer> post(const std::string& target, std::string json);
  Result<Answer> merge_patch(const std::string& target, std::string json);

  // A call to be started by the caller, as a watch is.
  Result<net::HttpCall> call(const std::string& method, const std::string& target) const;
  net::HttpClient& client() { return client_; }

 private:
  Result<Answer> run(const std::string& method, const std::string& target, const char* type,
                     const std::string& body);

  const Options options_;
  net::HttpClient client_;
};

// "the API server answers 409: the object has been modified".
Error kubernetes_error(const KubernetesApi::Answer& answer);

}  // namespace pelton::cluster
