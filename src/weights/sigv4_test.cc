#include "weights/sigv4.h"

#include <gtest/gtest.h>

namespace pelton::weights {
namespace {

// The examples of "Signature Calculations for the Authorization Header" in Amazon S3's API
// reference: 2013-05-24T00:00:00Z, the bucket "examplebucket" in us-east-1.
constexpr int64_t kTime = 1369353600;
const AwsCredentials kExample{.access_key = "AKIAIOSFODNN7EXAMPLE",
                              .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};

std::string authorization(const SignedRequest& request, const AwsCredentials& credentials) {
  return sign(request, credentials, kTime).back().second;
}

TEST(SigV4, PublishedExampleOfAnObjectWithARange) {
  const SignedRequest request{.host = "examplebucket.s3.amazonaws.com",
                              .path = "/test.txt",
                              .headers = {{"range", "bytes=0-9"}}};
  EXPECT_EQ(authorization(request, kExample),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(SigV4, PublishedExampleOfAQueryWithoutValue) {
  const SignedRequest request{.host = "examplebucket.s3.amazonaws.com",
                              .query = {{"lifecycle", ""}}};
  EXPECT_TRUE(authorization(request, kExample)
                  .ends_with("Signature="
                             "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
}

TEST(SigV4, PublishedExampleOfAListing) {
  const SignedRequest request{.host = "examplebucket.s3.amazonaws.com",
                              .query = {{"prefix", "J"}, {"max-keys", "2"}}};
  EXPECT_TRUE(authorization(request, kExample)
                  .ends_with("Signature="
                             "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

TEST(SigV4, ATokenOfTemporaryCredentialsIsSentAndSigned) {
  AwsCredentials temporary = kExample;
  temporary.session_token = "token";
  const auto headers = sign({.host = "h"}, temporary, kTime);
  EXPECT_EQ(headers[2], (std::pair<std::string, std::string>{"x-amz-security-token", "token"}));
  EXPECT_NE(headers.back().second.find("x-amz-date;x-amz-security-token"), std::string::npos);
}

TEST(SigV4, AKeyWithAColonIsOneKey) {
  AwsCredentials odd = kExample;
  odd.access_key = "test:tester";
  EXPECT_NE(authorization({.host = "h"}, odd).find("Credential=test:tester/20130524/"),
            std::string::npos);
}

TEST(SigV4, QueriesAreSortedAndEncoded) {
  EXPECT_EQ(canonical_query({{"prefix", "a b/ü"}, {"list-type", "2"}}),
            "list-type=2&prefix=a%20b%2F%C3%BC");
}

}  // namespace
}  // namespace pelton::weights
