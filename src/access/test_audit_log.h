// An audit log of a test's own, in a folder that goes with it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <stdlib.h>

#include "access/audit_log.h"
#include "base/file.h"

namespace pelton::access {

class TestAuditLog {
 public:
  static constexpr std::string_view kKey = "0123456789abcdef0123456789abcdef";

  TestAuditLog() {
    std::string name = (std::filesystem::temp_directory_path() / "pelton-audit-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    auto opened = AuditLog::open({.file = file(), .key = std::string(kKey)}, clock_, log_);
    EXPECT_TRUE(opened.ok());
    if (opened.ok()) log = *std::move(opened);
  }
  ~TestAuditLog() {
    log.reset();
    std::filesystem::remove_all(folder_);
  }

  std::string file() const { return (folder_ / "audit.jsonl").string(); }
  // All that has been noted, sound; nothing is noted from then on.
  std::vector<AuditEvent> close() {
    log.reset();
    std::vector<AuditLine> lines;
    const auto head = read_audit_head(*base::read_file(file() + ".head"), kKey);
    EXPECT_TRUE(head.ok());
    AuditProof proof;
    proof.head = *head;
    const AuditVerdict verdict = verify_audit(*base::read_file(file()), kKey, proof, &lines);
    EXPECT_FALSE(verdict.fault);
    std::vector<AuditEvent> events;
    for (AuditLine& line : lines) events.push_back(std::move(line.event));
    return events;
  }

  std::unique_ptr<AuditLog> log;

 private:
  base::SystemClock clock_;
  base::Log log_{clock_, {.level = base::LogLevel::kError}};
  std::filesystem::path folder_;
};

}  // namespace pelton::access
