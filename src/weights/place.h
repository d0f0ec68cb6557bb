// Where weights come from: "http://host:8001/NAME" (pelton weights serve, or any web server that
// knows ranges) or "s3://bucket/prefix", and what a request there must carry. Values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "hub/transfers.h"
#include "weights/sigv4.h"

namespace pelton::weights {

// What a user gives beside the address. None of it is ever in a message.
struct PlaceAccess {
  std::string key;  // a bearer token, for http(s); empty: none
  AwsCredentials aws;
  std::string s3_endpoint;  // "http://127.0.0.1:9000"; empty: Amazon's
};

// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION or AWS_DEFAULT_REGION,
// and AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL of this process; `endpoint`, where given, goes before
// them. Errors: kInvalidArgument for an endpoint that is no URL or half a pair of keys.
Result<PlaceAccess> place_access(std::string key, const std::string& endpoint);

struct Place {
  std::string text;  // as the user wrote it, without a slash at its end: for messages
  std::string url;   // of the folder, http or https, percent-encoded, without a slash at its end
  bool s3 = false;
  bool derived_key = false;  // a peer that was found: it is shown peer_key(), never the key itself
};

// Errors: kInvalidArgument: no http, https or s3 URL, one with a user's name, a query or a
// fragment.
Result<Place> parse_place(const std::string& text, const PlaceAccess& access);
// A folder in it; empty: itself.
Place place_below(const Place& place, const std::string& name);

// What peers of one fetch show each other in place of the key, which only those can make who have
// it; empty without a key.
std::string peer_key(const std::string& key, const std::string& manifest_digest);

// Of a file in it ("a/b.json"), signed or with the key.
hub::TransferRequest request_to(const Place& place, const std::string& path,
                                std::optional<hub::ByteRange> range, const PlaceAccess& access,
                                const std::string& manifest_digest, int64_t unix_seconds);

}  // namespace pelton::weights
