#include "access/audit_log.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"

namespace pelton::access {
namespace {

constexpr std::string_view kKey = "0123456789abcdef0123456789abcdef";

class AuditLogTest : public testing::Test {
 protected:
  AuditLogTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("pelton-audit-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~AuditLogTest() override { std::filesystem::remove_all(folder_); }

  std::string file() const { return (folder_ / "audit.jsonl").string(); }
  Result<std::unique_ptr<AuditLog>> open(int64_t bytes_max = int64_t{1} << 20) {
    return AuditLog::open({.file = file(), .key = std::string(kKey), .bytes_max = bytes_max},
                          clock_, log_);
  }
  AuditVerdict verify(const std::string& path, AuditHead before, bool has_head) {
    const Result<std::string> text = base::read_file(path);
    AuditProof proof{.before = std::move(before)};
    if (has_head) {
      const auto head = read_audit_head(*base::read_file(file() + ".head"), kKey);
      EXPECT_TRUE(head.ok());
      proof.head = *head;
    }
    seen_.clear();
    return verify_audit(*text, kKey, proof, &seen_);
  }

  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kError}};
  std::filesystem::path folder_;
  std::vector<AuditLine> seen_;
};

TEST_F(AuditLogTest, GoesOnBehindWhatIsThere) {
  for (int i = 0; i < 3; ++i) {
    auto audit = open();
    ASSERT_TRUE(audit.ok()) << audit.error().message;
    EXPECT_TRUE((*audit)->note({.who = "ann", .what = "configure", .result = "done"}));
  }
  EXPECT_FALSE(verify(file(), {}, true).fault);
  EXPECT_EQ(seen_.size(), 3u);
  EXPECT_EQ(seen_.back().event.at.size(), 24u);
}

TEST_F(AuditLogTest, WhatCameAThousandTimesIsSomeLines) {
  {
    auto audit = open();
    ASSERT_TRUE(audit.ok());
    for (int i = 0; i < 1000; ++i) {
      (*audit)->note_often({.who = i % 2 == 0 ? "a" : "b", .what = "refuse", .result = "403"});
    }
  }
  EXPECT_FALSE(verify(file(), {}, true).fault);
  EXPECT_LE(seen_.size(), 6u);
  int64_t sum = 0;
  for (const AuditLine& line : seen_) {
    const size_t comma = line.event.result.find(", ");
    sum += comma == std::string::npos ? 1 : std::stoll(line.event.result.substr(comma + 2));
  }
  EXPECT_EQ(sum, 1000);
}

TEST_F(AuditLogTest, AFullFileIsPutAsideAndTheChainGoesOn) {
  {
    auto audit = open(1000);
    ASSERT_TRUE(audit.ok());
    for (int i = 0; i < 12; ++i) EXPECT_TRUE((*audit)->note({.who = "ann", .what = "configure"}));
  }
  std::vector<std::pair<int64_t, std::string>> asides;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("audit.jsonl.") && !name.ends_with("head")) {
      asides.emplace_back(std::stoll(name.substr(12)), entry.path().string());
    }
  }
  ASSERT_GE(asides.size(), 2u);
  std::ranges::sort(asides);
  AuditHead end;
  for (const auto& [first, path] : asides) {
    const AuditVerdict verdict = verify(path, end, false);
    EXPECT_FALSE(verdict.fault) << path << verdict.fault->what;
    EXPECT_EQ(seen_.front().number, first);
    end = verdict.end;
  }
  EXPECT_FALSE(verify(file(), end, true).fault);
  EXPECT_EQ(seen_.back().number, 12);
  EXPECT_TRUE(open(1000).ok());
}

TEST_F(AuditLogTest, NothingIsWrittenOverALogOfBefore) {
  {
    auto audit = open(300);
    ASSERT_TRUE(audit.ok());
    ASSERT_TRUE(base::write_file(file() + ".1", "an old log").ok());
    int written = 0;
    for (int i = 0; i < 12; ++i) written += (*audit)->note({.who = "ann", .what = "x"}) ? 1 : 0;
    EXPECT_LT(written, 12);
    EXPECT_EQ((*audit)->failures(), 12 - written);
  }
  EXPECT_EQ(*base::read_file(file() + ".1"), "an old log");
  EXPECT_FALSE(verify(file(), {}, true).fault);
  const auto again = open(300);
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find(".1: a log of before"), std::string::npos);
  std::filesystem::remove(file() + ".1");
  EXPECT_TRUE(open(300).ok());
}

// No descriptor is left for the next file: what has been put aside stays as it is.
TEST_F(AuditLogTest, WhatIsPutAsideIsWrittenNoMore) {
  auto audit = open(300);
  ASSERT_TRUE(audit.ok());
  ASSERT_TRUE((*audit)->note({.who = "ann", .what = "first"}));
  ASSERT_TRUE((*audit)->note({.who = "ann", .what = "second"}));
  const std::string before = *base::read_file(file());
  ASSERT_GE(before.size(), 300u);
  // The head's name can be taken, and the log's cannot: a folder is there as soon as it has gone.
  std::filesystem::create_directory(file() + ".other");
  std::atomic<bool> ends = false;
  std::thread taker([&] {
    while (!ends && ::renameat2(AT_FDCWD, (file() + ".other").c_str(), AT_FDCWD, file().c_str(),
                                RENAME_NOREPLACE) != 0) {
    }
  });
  int lost = 0;
  for (int i = 0; i < 3; ++i) lost += (*audit)->note({.who = "ann", .what = "third"}) ? 0 : 1;
  ends = true;
  taker.join();
  EXPECT_EQ(*base::read_file(file() + ".1"), before);
  if (lost > 0) std::filesystem::remove(file());
  EXPECT_TRUE((*audit)->note({.who = "ann", .what = "last"}));
  EXPECT_EQ(*base::read_file(file() + ".1"), before);
}

TEST_F(AuditLogTest, OfManyAddressesNoneIsNamed) {
  {
    auto audit = open();
    ASSERT_TRUE(audit.ok());
    for (const char* from : {"10.0.0.1", "10.0.0.2"}) {
      (*audit)->note_often({.from = from, .what = "refuse", .result = "401"});
    }
  }
  EXPECT_FALSE(verify(file(), {}, true).fault);
  ASSERT_EQ(seen_.size(), 1u);
  EXPECT_EQ(seen_[0].event.from, "");
  EXPECT_EQ(seen_[0].event.result, "401, 2 times");
}

TEST_F(AuditLogTest, OneThatIsNotWholeIsNotGoneOnWith) {
  {
    auto audit = open();
    for (int i = 0; i < 4; ++i) (*audit)->note({.what = "configure", .target = std::to_string(i)});
  }
  const std::string text = *base::read_file(file());
  const std::string head = *base::read_file(file() + ".head");
  const auto refused = [&](const std::string& lines, const std::string& its_head) {
    EXPECT_TRUE(base::write_file(file(), lines).ok());
    EXPECT_TRUE(base::write_file(file() + ".head", its_head).ok());
    const auto audit = open();
    return !audit.ok() && audit.error().code == ErrorCode::kBadConfig;
  };
  EXPECT_TRUE(refused(text.substr(0, text.rfind('\n', text.size() - 2) + 1), head)) << "cut";
  EXPECT_TRUE(refused("", head)) << "emptied";
  EXPECT_TRUE(refused(text, "")) << "without a head";
  std::string changed = text;
  changed[changed.find("\"2\"") + 1] = '7';
  EXPECT_TRUE(refused(changed, head));
  EXPECT_TRUE(refused(text.substr(text.find('\n') + 1), head)) << "its beginning is cut";
  std::filesystem::remove(file());
  EXPECT_FALSE(open().ok()) << "gone";
  // A line that its writer had begun when it ended is none.
  EXPECT_FALSE(refused(text + "{\"n\":5,\"at\"", head));
  EXPECT_EQ(*base::read_file(file()), text);
  const std::string none = AuditChain(std::string(kKey), {}).head_text();
  EXPECT_FALSE(refused("{\"n\":1,\"at\"", none));
  EXPECT_EQ(*base::read_file(file()), "") << "nor is the first one";
}

// Else two processes' lines would each follow the same one.
TEST_F(AuditLogTest, IsOneProcesss) {
  const auto audit = open();
  ASSERT_TRUE(audit.ok());
  const auto other = open();
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("another process"), std::string::npos);
}

// A full disk, as the system says it.
TEST_F(AuditLogTest, LinesThatCouldNotBeWrittenAreCounted) {
  auto audit = open();
  ASSERT_TRUE(audit.ok());
  EXPECT_TRUE((*audit)->note({.what = "first"}));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  rlimit less = before;
  less.rlim_cur = std::filesystem::file_size(file()) + 10;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &less), 0);
  EXPECT_FALSE((*audit)->note({.what = "lost"}));
  EXPECT_FALSE((*audit)->note({.what = "lost"}));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, ignored);
  EXPECT_TRUE((*audit)->note({.what = "last"}));
  EXPECT_EQ((*audit)->failures(), 2);
  EXPECT_FALSE(verify(file(), {}, true).fault);
  ASSERT_EQ(seen_.size(), 3u);
  EXPECT_EQ(seen_[1].event.result, "2 lines before this one were not written");
  EXPECT_EQ(seen_[2].event.what, "last");
}

// Two of them would be a log that its head does not fit.
TEST_F(AuditLogTest, ALineWhoseHeadCannotBeWrittenIsTakenOutAgain) {
  {
    auto audit = open();
    ASSERT_TRUE(audit.ok());
    EXPECT_TRUE((*audit)->note({.what = "first"}));
    const std::string in_the_way = file() + ".head.new";
    std::filesystem::create_directory(in_the_way);
    EXPECT_FALSE((*audit)->note({.what = "lost"}));
    EXPECT_FALSE((*audit)->note({.what = "lost"}));
    EXPECT_FALSE(verify(file(), {}, true).fault);
    EXPECT_EQ(seen_.size(), 1u);
    std::filesystem::remove(in_the_way);
  }
  EXPECT_TRUE(open().ok());
}

}  // namespace
}  // namespace pelton::access
