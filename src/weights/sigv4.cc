#include "weights/sigv4.h"

#include <algorithm>
#include <ctime>

#include <fmt/format.h>

#include "base/digest.h"
#include "hub/hub_url.h"

namespace pelton::weights {
namespace {

// Of an empty body.
constexpr const char* kNoBody = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string bytes_of(const std::string& hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  }
  return bytes;
}

std::string utc(int64_t unix_seconds) {
  const std::time_t time = unix_seconds;
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &parts);
  return text;
}

}  // namespace

std::string canonical_query(std::vector<std::pair<std::string, std::string>> query) {
  for (auto& [name, value] : query) {
    name = hub::encode_segment(name);
    value = hub::encode_segment(value);
  }
  std::sort(query.begin(), query.end());
  std::string text;
  for (const auto& [name, value] : query) {
    text += (text.empty() ? "" : "&") + name + "=" + value;
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> sign(const SignedRequest& request,
                                                      const AwsCredentials& credentials,
                                                      int64_t unix_seconds) {
  const std::string time = utc(unix_seconds);
  const std::string day = time.substr(0, 8);
  std::vector<std::pair<std::string, std::string>> added = {{"x-amz-content-sha256", kNoBody},
                                                            {"x-amz-date", time}};
  if (!credentials.session_token.empty()) {
    added.emplace_back("x-amz-security-token", credentials.session_token);
  }
  std::vector<std::pair<std::string, std::string>> all = request.headers;
  all.insert(all.end(), added.begin(), added.end());
  all.emplace_back("host", request.host);
  std::sort(all.begin(), all.end());
  std::string headers;
  std::string names;
  for (const auto& [name, value] : all) {
    headers += name + ":" + value + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical =
      fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, request.path,
                  canonical_query(request.query), headers, names, kNoBody);
  const std::string scope = fmt::format("{}/{}/s3/aws4_request", day, credentials.region);
  const std::string text =
      fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, scope, base::sha256(canonical));
  std::string key = "AWS4" + credentials.secret_key;
  for (const std::string& part :
       {day, credentials.region, std::string("s3"), std::string("aws4_request")}) {
    key = bytes_of(base::hmac_sha256(key, part));
  }
  added.emplace_back(
      "authorization",
      fmt::format("AWS4-HMAC-SHA256 Credential={}/{},SignedHeaders={},Signature={}",
                  credentials.access_key, scope, names, base::hmac_sha256(key, text)));
  return added;
}

}  // namespace pelton::weights
