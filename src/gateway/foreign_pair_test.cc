#include "gateway/foreign_pair.h"

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

// KV-10, KV-13: also where a server takes members of another field for its own.
TEST(TransferField, NoClientSaysWhereKeysAndValuesAre) {
  EXPECT_EQ(transfer_field_of(R"({"kv_transfer_params":{"remote_host":"h"}})"),
            "kv_transfer_params");
  EXPECT_EQ(transfer_field_of(R"({"vllm_xargs":{"kv_transfer_params":"h"}})"),
            "kv_transfer_params");
  EXPECT_EQ(transfer_field_of(
                R"({"sampling_params":{"extra_args":{"kv_transfer_params":{"remote_host":"h"}}}})"),
            "kv_transfer_params");
  EXPECT_EQ(transfer_field_of(R"({"bootstrap_room":7})"), "bootstrap_room");
  // What is empty is passed on too.
  EXPECT_EQ(transfer_field_of(R"({"kv_transfer_params":{}})"), "kv_transfer_params");
  EXPECT_EQ(transfer_field_of(R"({"a":{"b":[]},"bootstrap_room":[]})"), "bootstrap_room");
  EXPECT_EQ(transfer_field_of(R"({"bootstrap_host":""})"), "bootstrap_host");
  EXPECT_EQ(transfer_field_of(R"({"kv_transfer_params":null,"bootstrap_host":null,"n":{}})"), "");
  // A tool's parameter may be called so.
  EXPECT_EQ(transfer_field_of(
                R"({"tools":[{"function":{"parameters":{"bootstrap_host":{"type":"string"}}}}]})"),
            "");
}

}  // namespace
}  // namespace pelton::gateway
