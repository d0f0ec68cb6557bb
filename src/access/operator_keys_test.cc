#include "access/operator_keys.h"

#include <variant>

#include <gtest/gtest.h>

#include "access/admin_gate.h"

namespace pelton::access {
namespace {

constexpr std::string_view kFile =
    "# keys\nkey-v vera role=view\nkey-o 2 rpm=5 role=operate pool=p\nkey-a role=admin\n"
    "key-t tenant 1 rpm=3\nkey-n explain role=view\n";

net::HttpRequest with(std::string_view name, std::string_view value) {
  net::HttpRequest request{.method = "GET", .path = "/"};
  if (!name.empty()) request.headers.add(std::string(name), std::string(value));
  return request;
}

int status(const AdminGate& gate, const net::HttpRequest& request, OperatorRole needed) {
  const auto who = gate.admit(request, needed);
  const auto* refused = std::get_if<api::ApiError>(&who);
  return refused == nullptr ? 200 : refused->status;
}

TEST(OperatorKeys, AreTheLinesWithARole) {
  OperatorKeys keys;
  EXPECT_TRUE(keys.empty());
  keys.add_file(kFile);
  ASSERT_NE(keys.operator_of("key-v"), nullptr);
  EXPECT_EQ(keys.operator_of("key-v")->name, "vera");
  EXPECT_EQ(keys.operator_of("key-v")->role, OperatorRole::kView);
  EXPECT_EQ(keys.operator_of("key-o")->role, OperatorRole::kOperate);
  EXPECT_EQ(keys.operator_of("key-o")->name, "2");
  EXPECT_EQ(keys.operator_of("key-a")->role, OperatorRole::kAdmin);
  EXPECT_EQ(keys.operator_of("key-a")->name, "an operator");
  EXPECT_EQ(keys.operator_of("key-n")->name, "an operator");
  EXPECT_EQ(keys.operator_of("key-t"), nullptr);
  EXPECT_EQ(keys.operator_of(""), nullptr);
  EXPECT_FALSE(role_word("role=root"));
  EXPECT_FALSE(role_word("role="));
}

TEST(AdminGate, AKeyMayWhatItsRoleMay) {
  AdminGate gate(AdminGate::Keys::kAsked);
  OperatorKeys keys;
  keys.add_file(kFile);
  gate.set_keys(keys);
  using enum OperatorRole;
  EXPECT_EQ(status(gate, with("", ""), kView), 401);
  EXPECT_EQ(status(gate, with("", ""), kNone), 200) << "probes carry no key";
  EXPECT_EQ(status(gate, with("Authorization", "Bearer key-t"), kView), 401);
  EXPECT_EQ(status(gate, with("Authorization", "Basic key-a"), kView), 401);
  EXPECT_EQ(status(gate, with("Authorization", "Bearer key-v"), kView), 200);
  EXPECT_EQ(status(gate, with("authorization", "bearer key-v"), kOperate), 403);
  EXPECT_EQ(status(gate, with("x-api-key", "key-v"), kAdmin), 403);
  EXPECT_EQ(status(gate, with("x-api-key", "key-o"), kOperate), 200);
  EXPECT_EQ(status(gate, with("x-api-key", "key-o"), kAdmin), 403);
  EXPECT_EQ(status(gate, with("x-api-key", "key-a"), kAdmin), 200);
  // Two that differ are none: which one counts, a proxy may see otherwise.
  net::HttpRequest two = with("x-api-key", "key-a");
  two.headers.add("Authorization", "Bearer key-v");
  EXPECT_EQ(status(gate, two, kView), 401);
  net::HttpRequest twice = with("x-api-key", "key-a");
  twice.headers.add("x-api-key", "key-a");
  EXPECT_EQ(status(gate, twice, kView), 401);
  const auto who = gate.admit(with("x-api-key", "key-v"), kView);
  EXPECT_EQ(std::get<std::string>(who), "vera");
  gate.set_keys({});
  EXPECT_EQ(status(gate, with("x-api-key", "key-a"), kView), 401);
}

TEST(AdminGate, WhereNoKeyIsAskedForOneIsHeldToItsRoleAllTheSame) {
  AdminGate gate(AdminGate::Keys::kNotAsked);
  OperatorKeys keys;
  keys.add_file(kFile);
  gate.set_keys(keys);
  EXPECT_EQ(status(gate, with("", ""), OperatorRole::kAdmin), 200);
  EXPECT_EQ(status(gate, with("x-api-key", "nobody's"), OperatorRole::kAdmin), 200);
  EXPECT_EQ(status(gate, with("x-api-key", "key-v"), OperatorRole::kOperate), 403);
  EXPECT_EQ(status(gate, with("x-api-key", "key-v"), OperatorRole::kView), 200);
}

}  // namespace
}  // namespace pelton::access
