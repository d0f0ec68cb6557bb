// AWS Signature Version 4 of requests without a body: what S3 and its like ask for. Pure functions;
// any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pelton::weights {

struct AwsCredentials {
  std::string access_key;     // empty: requests are not signed
  std::string secret_key;     // never in a message
  std::string session_token;  // of temporary ones; may be empty
  std::string region = "us-east-1";
};

struct SignedRequest {
  std::string method = "GET";
  std::string host;        // as the Host header has it: "bucket.s3.amazonaws.com", "127.0.0.1:9000"
  std::string path = "/";  // percent-encoded once, as S3 has it
  // Names and values as they are, not encoded.
  std::vector<std::pair<std::string, std::string>> query = {};
  // To be signed beside those that this adds; names in lower case.
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// "x-amz-content-sha256", "x-amz-date", "x-amz-security-token" where there is one, and
// "authorization": names in lower case. `unix_seconds`: now.
std::vector<std::pair<std::string, std::string>> sign(const SignedRequest& request,
                                                      const AwsCredentials& credentials,
                                                      int64_t unix_seconds);

// "max-keys=2&prefix=J": sorted and encoded as it is signed, and to be sent so.
std::string canonical_query(std::vector<std::pair<std::string, std::string>> query);

}  // namespace pelton::weights
