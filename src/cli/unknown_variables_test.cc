#include "cli/unknown_variables.h"

#include <cstdlib>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace pelton::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<Verb> verbs() {
  return {{.name = "serve",
           .positionals = {{.name = "MODEL", .help = "m", .variables = {"PELTON_MODEL"}}},
           .flags = {{.name = "--max-connections", .value = "N", .kind = Flag::Kind::kInteger},
                     {.name = "--port", .value = "N", .kind = Flag::Kind::kInteger}}},
          {.name = "chat", .flags = {{.name = "--current-date", .value = "DATE"}}}};
}

// Whoever runs the tests has variables of his own: hidden meanwhile.
class UnknownVariables : public testing::Test {
 protected:
  UnknownVariables() : before_(ours()) {
    for (const auto& [name, value] : before_) unsetenv(name.c_str());
  }
  ~UnknownVariables() override {
    for (const auto& [name, value] : ours()) unsetenv(name.c_str());
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }
  static void set(const std::string& name, const char* value) { setenv(name.c_str(), value, 1); }
  static std::vector<std::string> found() {
    return unknown_variables(verbs(), {"PELTON_CACHE", "PELTON_DEVICE*"});
  }

 private:
  static std::map<std::string, std::string> ours() {
    std::map<std::string, std::string> variables;
    for (char** at = environ; *at != nullptr; ++at) {
      const std::string_view given(*at);
      const size_t end = given.find('=');
      if (!given.starts_with("PELTON_") || end == std::string_view::npos) continue;
      variables.emplace(given.substr(0, end), given.substr(end + 1));
    }
    return variables;
  }

  const std::map<std::string, std::string> before_;
};

// A29: the name is said, its value never.
TEST_F(UnknownVariables, A29_ASlipIsNamedWithTheNearest) {
  set("PELTON_MAX_CONNECTION", "secret");
  EXPECT_THAT(found(), ElementsAre("$PELTON_MAX_CONNECTION is not known, and changes nothing; did "
                                   "you mean $PELTON_MAX_CONNECTIONS?"));
  set("PELTON_ZZZZZZZZZZZZ", "secret");
  EXPECT_THAT(found(), ElementsAre(testing::_,
                                   "$PELTON_ZZZZZZZZZZZZ is not known, and changes "
                                   "nothing"));
}

TEST_F(UnknownVariables, WhatSomebodyReadsIsFine) {
  set("PELTON_MAX_CONNECTIONS", "3");
  set("PELTON_MODEL", "m");
  set("PELTON_CURRENT_DATE", "2026-01-01");  // another verb's
  set("PELTON_CACHE", "/tmp");
  set("PELTON_DEVICE_LIBRARY", "x");
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(UnknownVariables, KubernetesServiceLinksAreNobodysSlip) {
  set("PELTON_SERVICE_HOST", "10.0.0.1");
  set("PELTON_SERVICE_PORT_HTTP", "80");
  set("PELTON_PORT_8000_TCP_ADDR", "10.0.0.1");
  set("PELTON_GATEWAY_PORT", "tcp://10.0.0.1:80");
  EXPECT_THAT(found(), IsEmpty());
}

}  // namespace
}  // namespace pelton::cli
