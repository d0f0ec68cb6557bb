#include "access/audit_chain.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pelton::access {
namespace {

constexpr std::string_view kKey = "0123456789abcdef0123456789abcdef";

struct Log {
  std::vector<std::string> lines;  // each with its line feed
  std::string head;
  AuditHead end;
};

Log make(int count, std::string_view key, std::string_view who) {
  AuditChain chain(std::string(key), {});
  Log log;
  for (int i = 0; i < count; ++i) {
    log.lines.push_back(chain.append({.at = "2026-11-29T19:00:00.000Z",
                                      .who = std::string(who),
                                      .from = "10.0.0.7",
                                      .what = "configure",
                                      .target = "gateway.toml " + std::to_string(i),
                                      .result = "done",
                                      .detail = {"-weight = 1", "+weight = 2"}}));
  }
  log.head = chain.head_text();
  log.end = chain.head();
  return log;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& one : lines) text += one;
  return text;
}

AuditVerdict verify(const std::string& text, const std::string& head) {
  const Result<AuditHead> read = read_audit_head(head, kKey);
  if (!read.ok()) return {.fault = AuditVerdict::Fault{.line = 0, .what = read.error().message}};
  return verify_audit(text, kKey, {.head = *read}, nullptr);
}

TEST(AuditChain, IsReadAsItIsWritten) {
  const Log log = make(5, kKey, "ann");
  std::vector<AuditLine> seen;
  const Result<AuditHead> head = read_audit_head(log.head, kKey);
  ASSERT_TRUE(head.ok());
  const AuditVerdict verdict =
      verify_audit(joined(log.lines), kKey, {.head = *head, .noted = log.end.hash}, &seen);
  EXPECT_FALSE(verdict.fault) << verdict.fault->what;
  EXPECT_EQ(verdict.lines, 5);
  EXPECT_TRUE(verdict.end.is_at(log.end));
  ASSERT_EQ(seen.size(), 5u);
  EXPECT_EQ(seen[3].event.target, "gateway.toml 3");
  EXPECT_EQ(seen[3].event.detail, (std::vector<std::string>{"-weight = 1", "+weight = 2"}));
  EXPECT_FALSE(verify("", make(0, kKey, "ann").head).fault);
}

TEST(AuditChain, AWriterThatEndedBetweenLineAndHeadIsNoFault) {
  AuditChain chain(std::string(kKey), {});
  std::string text = chain.append({.what = "a"});
  const std::string head = chain.head_text();
  text += chain.append({.what = "b"});
  EXPECT_FALSE(verify(text, head).fault);
  EXPECT_TRUE(verify(text, head).is_ahead);
  text += chain.append({.what = "c"});
  EXPECT_TRUE(verify(text, head).fault) << "two of them are";
}

TEST(AuditChain, GoesOnInAnotherFile) {
  AuditChain chain(std::string(kKey), {});
  const std::string first = chain.append({.what = "a"});
  chain.begin_file();
  const AuditHead between = chain.head();
  AuditChain next(std::string(kKey), between);
  const std::string second = next.append({.what = "b"});
  const AuditProof proof{.before = between, .head = next.head()};
  EXPECT_FALSE(verify_audit(second, kKey, proof, nullptr).fault);
  EXPECT_TRUE(verify_audit(second, kKey, {}, nullptr).fault) << "its beginning is missing";
  EXPECT_FALSE(verify(second, next.head_text()).fault) << "its head says that it begins there";
  const std::string third = next.append({.what = "c"});
  EXPECT_TRUE(verify(third, next.head_text()).fault) << "and where";
}

TEST(AuditChain, AnOlderLogWithItsHeadIsFoundByAHashNotedElsewhere) {
  const Log old = make(3, kKey, "ann");
  const Log now = make(6, kKey, "ann");
  EXPECT_FALSE(verify(joined(old.lines), old.head).fault);
  const AuditProof proof{.head = old.end, .noted = now.end.hash};
  EXPECT_TRUE(verify_audit(joined(old.lines), kKey, proof, nullptr).fault);
}

TEST(AuditChain, LongTextsAreCut) {
  AuditChain chain(std::string(kKey), {});
  AuditEvent event{.who = std::string(1 << 20, 'x')};
  event.detail.assign(10'000, std::string(1000, 'y'));
  EXPECT_LT(chain.append(event).size(), 20'000u);
}

// What somebody may do to a log who has not the key; false: nothing is another one then.
bool tamper(Log& log, const Log& other, std::mt19937_64& random) {
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  std::vector<std::string>& lines = log.lines;
  const std::vector<std::string> before = lines;
  const std::string head = log.head;
  const size_t at = below(lines.size());
  switch (below(9)) {
    case 0: {  // a byte
      std::string& line = lines[at];
      line[below(line.size())] = static_cast<char>(random());
      break;
    }
    case 1:  // lines cut out
      lines.erase(
          lines.begin() + static_cast<std::ptrdiff_t>(at),
          lines.begin() + static_cast<std::ptrdiff_t>(std::min(at + 1 + below(3), lines.size())));
      break;
    case 2:  // moved
      std::swap(lines[at], lines[below(lines.size())]);
      break;
    case 3:  // said twice
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(at), lines[below(lines.size())]);
      break;
    case 4:  // forged under a key of one's own
      lines[at] = make(static_cast<int>(at) + 1, "another key of sixteen", "eve").lines[at];
      break;
    case 5:  // of another log under the same key
      lines[at] = other.lines[std::min(at, other.lines.size() - 1)];
      break;
    case 6:  // the end
      lines.resize(at);
      break;
    case 7:  // part of the last line
      lines.back().resize(below(lines.back().size()));
      break;
    default:  // the head: of another log, or a byte of it
      if (below(2) == 0) {
        log.head = other.head;
      } else {
        log.head[below(log.head.size())] = static_cast<char>(random());
      }
  }
  return joined(lines) != joined(before) || log.head != head;
}

TEST(AuditChain, WhateverIsChangedCutMovedOrAddedIsFound) {
  const int cases = std::getenv("PELTON_FULL") != nullptr ? 10'000 : 1500;
  const char* given = std::getenv("PELTON_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("PELTON_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const Log sound = make(9, kKey, "ann");
  const Log other = make(7, kKey, "bob");
  int tampered = 0;
  for (int i = 0; i < cases; ++i) {
    Log log = sound;
    if (!tamper(log, other, random)) continue;
    ++tampered;
    // The head's own line feed is no part of what it says.
    const bool is_sound = log.head + "\n" == sound.head && joined(log.lines) == joined(sound.lines);
    EXPECT_TRUE(is_sound || verify(joined(log.lines), log.head).fault)
        << joined(log.lines) << log.head;
  }
  EXPECT_GT(tampered, cases / 2);
}

}  // namespace
}  // namespace pelton::access
