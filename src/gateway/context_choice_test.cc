#include "gateway/context_choice.h"

#include <array>

#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

constexpr std::array<WorkerContext, 2> kWorkers = {WorkerContext{.tokens = 768},
                                                   WorkerContext{.tokens = 256}};

TEST(ContextChoice, ThePromptAndTheBoundOfItsAnswerHaveToFit) {
  EXPECT_EQ(context_to_ask(200, 56, kWorkers), 256);
  EXPECT_EQ(context_to_ask(200, 57, kWorkers), 257);
  EXPECT_EQ(context_to_ask(255, 0, kWorkers), 256);  // without a bound: a token of it
}

TEST(ContextChoice, WhereNoneHasRoomTheLargestSaysSo) {
  EXPECT_EQ(context_to_ask(800, 8, kWorkers), 768);
  EXPECT_EQ(context_to_ask(800, 8,
                           std::array{WorkerContext{.tokens = 768, .usable = false},
                                      WorkerContext{.tokens = 256}}),
            256);
}

// Whoever is full, or away for a while, takes it later: a small one's 400 would be wrong.
TEST(ContextChoice, OneThatTakesNoRequestsNowHasRoom) {
  EXPECT_EQ(context_to_ask(400, 8,
                           std::array{WorkerContext{.tokens = 768, .usable = false},
                                      WorkerContext{.tokens = 256}}),
            408);
}

TEST(ContextChoice, NothingIsTooLongForAContextThatIsNotKnown) {
  EXPECT_EQ(context_to_ask(800, 8, std::array{WorkerContext{}, WorkerContext{.tokens = 256}}), 808);
}

}  // namespace
}  // namespace pelton::gateway
