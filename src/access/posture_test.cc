#include "access/posture.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pelton::access {
namespace {

// What passes all there is.
Posture sound() {
  return {
      .listeners = {{.name = "clients",
                     .address = "0.0.0.0:8000",
                     .is_local = false,
                     .asks = true,
                     .has_tls = true},
                    {.name = "admin", .address = "127.0.0.1:8091", .asks = true}},
      .links = {{.name = "worker 10.0.0.1:9000", .is_encrypted = true}},
      .storage = {{.what = "responses", .place = "r.db", .has_text = true, .is_encrypted = true},
                  {.what = "audit log", .place = "a.jsonl"}},
      .secrets = {{.what = "keys", .file = "keys", .mode = 0640}},
      .keys = {.clients = 1, .viewers = 1, .admins = 1},
      .keeps_audit = true,
      .finds_workers = true,
      .bounds_workers = true};
}

// The rules that it fails.
std::vector<std::string> failed(const Posture& posture, PostureProfile profile) {
  std::vector<std::string> rules;
  for (const PostureFinding& one : check_posture(posture, profile)) {
    if (!one.passes()) rules.emplace_back(one.rule);
  }
  return rules;
}

using Rules = std::vector<std::string>;

TEST(PostureTest, AProfileHasTheRulesOfTheOneBefore) {
  for (const std::string_view name : kPostureProfiles) {
    const auto profile = posture_profile_named(name);
    ASSERT_TRUE(profile);
    EXPECT_EQ(failed(sound(), *profile), Rules{}) << name;
  }
  EXPECT_FALSE(posture_profile_named("strict"));
  EXPECT_EQ(check_posture({}, PostureProfile::kLocal).size(), 2u);
  EXPECT_EQ(check_posture({}, PostureProfile::kShared).size(), 7u);
  EXPECT_EQ(check_posture({}, PostureProfile::kRegulated).size(), 11u);
}

// Each change of what is sound fails its rule, from its profile on, and no other.
TEST(PostureTest, EachRuleFailsByItself) {
  struct Case {
    std::string rule;
    PostureProfile from;
    void (*change)(Posture& posture);
    std::string names;
  };
  using P = PostureProfile;
  const std::vector<Case> cases = {
      {"listeners_ask", P::kLocal,
       [](Posture& p) {
         p.listeners.push_back(
             {.name = "KEDA", .address = "10.0.0.1:9090", .is_local = false, .has_tls = true});
       },
       "KEDA at 10.0.0.1:9090"},
      {"secrets_private", P::kLocal, [](Posture& p) { p.secrets[0].mode = 0644; },
       "keys (keys, mode 0644)"},
      {"secrets_private", P::kLocal, [](Posture& p) { p.secrets[0].mode.reset(); },
       "which is not there"},
      {"secrets_private", P::kLocal,
       [](Posture& p) { p.secrets.push_back({.what = "--api-key", .file = "", .mode = {}}); },
       "--api-key in the command's words"},
      {"clients_have_keys", P::kShared,
       [](Posture& p) { p.listeners[0] = {.name = "clients", .address = "127.0.0.1:8000"}; },
       "clients at 127.0.0.1:8000"},
      {"operators_have_keys", P::kShared, [](Posture& p) { p.listeners[1].asks = false; },
       "admin at 127.0.0.1:8091"},
      {"audit_kept", P::kShared, [](Posture& p) { p.keeps_audit = false; }, "--audit-log"},
      {"links_encrypted", P::kShared, [](Posture& p) { p.links[0].is_encrypted = false; },
       "worker 10.0.0.1:9000"},
      {"workers_bounded", P::kShared, [](Posture& p) { p.bounds_workers = false; },
       "allowed_cidrs"},
      {"listeners_encrypted", P::kRegulated, [](Posture& p) { p.listeners[0].has_tls = false; },
       "clients at 0.0.0.0:8000"},
      {"storage_encrypted", P::kRegulated, [](Posture& p) { p.storage[0].is_encrypted = false; },
       "r.db (responses)"},
      {"roles_apart", P::kRegulated, [](Posture& p) { p.keys.viewers = 0; }, "role=view"},
      {"roles_apart", P::kRegulated, [](Posture& p) { p.keys.admins = 0; }, "role=admin"},
      {"no_core_dumps", P::kRegulated, [](Posture& p) { p.leaves_core_dumps = true; },
       "--allow-core-dumps"}};
  for (const Case& one : cases) {
    Posture posture = sound();
    one.change(posture);
    for (const P profile : {P::kLocal, P::kShared, P::kRegulated}) {
      EXPECT_EQ(failed(posture, profile), profile < one.from ? Rules{} : Rules{one.rule});
    }
    for (const PostureFinding& finding : check_posture(posture, P::kRegulated)) {
      if (finding.rule != one.rule) continue;
      EXPECT_NE(finding.why.find(one.names), std::string::npos) << finding.why;
    }
  }
}

}  // namespace
}  // namespace pelton::access
