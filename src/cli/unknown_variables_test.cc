#include "cli/unknown_variables.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

class UnknownVariables : public testing::Test {
 protected:
  ~UnknownVariables() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
  }
  void set(const std::string& name, const char* value) {
    set_.push_back(name);
    setenv(name.c_str(), value, 1);
  }
  static std::vector<std::string> found() {
    // Whoever runs the tests may have others.
    return unknown_variables(verbs(), {"PELTON_CACHE", "PELTON_DEVICE*", "PELTON_SEED",
                                       "PELTON_FULL", "PELTON_KERNEL*", "PELTON_TEST_*"});
  }

 private:
  std::vector<std::string> set_;
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
