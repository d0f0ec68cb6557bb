#include "weights/place.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "base/digest.h"
#include "hub/hub_url.h"

namespace pelton::weights {
namespace {

constexpr std::string_view kS3 = "s3://";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string first_of(std::string a, std::string b) {
  return a.empty() ? std::move(b) : std::move(a);
}

Error bad_place(const std::string& text, const std::string& what) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", text, what), "URL"};
}

std::string without_slash(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  return text;
}

// A bucket's name is a host's label; one with dots matches no certificate of Amazon's.
bool is_bucket(std::string_view name) {
  return name.size() >= 3 && name.size() <= 63 && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
                  c == '_' || (c >= 'A' && c <= 'Z');
         });
}

Result<Place> parse_s3(const std::string& text, const PlaceAccess& access) {
  const std::string rest = text.substr(kS3.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  const std::string bucket = rest.substr(0, slash);
  if (!is_bucket(bucket))
    return bad_place(text, "s3:// wants a bucket's name, as s3://bucket/path");
  const std::string path = hub::encode_path(rest.substr(slash));
  std::string url = access.s3_endpoint + "/" + bucket;
  if (access.s3_endpoint.empty()) {
    const bool has_dots = bucket.find('.') != std::string::npos;
    url = has_dots ? fmt::format("https://s3.{}.amazonaws.com/{}", access.aws.region, bucket)
                   : fmt::format("https://{}.s3.{}.amazonaws.com", bucket, access.aws.region);
  }
  return Place{.text = text, .url = url + path, .s3 = true};
}

// What a URL's host is in a Host header, and its path.
std::pair<std::string, std::string> host_and_path(const std::string& url) {
  const size_t host = url.find("://") + 3;
  const size_t path = std::min(url.find('/', host), url.size());
  std::string name = url.substr(host, path - host);
  // As it is in the request: without the scheme's own port.
  const std::string_view port = url.starts_with("https:") ? ":443" : ":80";
  if (name.ends_with(port)) name.resize(name.size() - port.size());
  return {std::move(name), path == url.size() ? "/" : url.substr(path)};
}

}  // namespace

Result<PlaceAccess> place_access(std::string key, const std::string& endpoint) {
  PlaceAccess access{.key = std::move(key), .aws = {}, .s3_endpoint = {}};
  access.aws.access_key = variable("AWS_ACCESS_KEY_ID");
  access.aws.secret_key = variable("AWS_SECRET_ACCESS_KEY");
  access.aws.session_token = variable("AWS_SESSION_TOKEN");
  access.aws.region =
      first_of(first_of(variable("AWS_REGION"), variable("AWS_DEFAULT_REGION")), "us-east-1");
  if (access.aws.access_key.empty() != access.aws.secret_key.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY go together", "weights-endpoint"};
  }
  access.s3_endpoint = without_slash(
      first_of(endpoint, first_of(variable("AWS_ENDPOINT_URL_S3"), variable("AWS_ENDPOINT_URL"))));
  if (access.s3_endpoint.empty()) return access;
  if (const Result<hub::Origin> origin = hub::origin_of(access.s3_endpoint); !origin.ok()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the S3 endpoint {} {}", access.s3_endpoint, origin.error().message),
                 "weights-endpoint"};
  }
  return access;
}

Result<Place> parse_place(const std::string& given, const PlaceAccess& access) {
  const std::string text = without_slash(given);
  if (text.find_first_of("?#\\ ") != std::string::npos) {
    return bad_place(text, "a place of weights has no query, fragment or blank");
  }
  if (text.starts_with(kS3)) return parse_s3(text, access);
  if (const Result<hub::Origin> origin = hub::origin_of(text); !origin.ok()) {
    return bad_place(text, origin.error().message +
                               "; weights come from http://, https:// or "
                               "s3://bucket/path");
  }
  return Place{.text = text, .url = text};
}

Place place_below(const Place& place, const std::string& name) {
  if (name.empty()) return place;
  Place below = place;
  below.text += "/" + name;
  below.url += "/" + hub::encode_path(name);
  return below;
}

std::string peer_key(const std::string& key, const std::string& manifest_digest) {
  return key.empty() ? "" : base::hmac_sha256(key, "pelton weights peer " + manifest_digest);
}

hub::TransferRequest request_to(const Place& place, const std::string& path,
                                std::optional<hub::ByteRange> range, const PlaceAccess& access,
                                const std::string& manifest_digest, int64_t unix_seconds) {
  hub::TransferRequest request{.url = place.url + "/" + hub::encode_path(path), .range = range};
  if (!place.s3) {
    request.token = place.derived_key ? peer_key(access.key, manifest_digest) : access.key;
    return request;
  }
  if (access.aws.access_key.empty()) return request;  // what anybody may read
  const auto [host, target] = host_and_path(request.url);
  for (const auto& [name, value] : sign({.host = host, .path = target}, access.aws, unix_seconds)) {
    request.headers.push_back(name + ": " + value);
  }
  return request;
}

}  // namespace pelton::weights
