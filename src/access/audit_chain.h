// Lines of an audit log that show whether anything was done to them: each has the hash of the one
// before it and a MAC under a key, and a head beside the log, which is sealed likewise, says which
// line is the last. Who has not the key can change, cut, move or add no line without its being
// found. Who puts an older log and its older head in their place is found by a head that was noted
// elsewhere. Pure; one thread at a time.
//
//   {"n":2,"at":"…","who":"ann",…,"prev":"<SHA-256 of line 1>","mac":"<HMAC-SHA256 of all before>"}
//   head: {"n":2,"hash":"<SHA-256 of line 2>","first":1,"mac":"…"}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace pelton::access {

struct AuditEvent {
  std::string at = {};      // as base::utc_time has it
  std::string who = {};     // empty: nobody who is known
  std::string from = {};    // an address; empty: this machine itself
  std::string what = {};    // "configure", "rollback"
  std::string target = {};  // of what; empty: of the whole
  std::string result = {};
  std::vector<std::string> detail = {};  // lines; of a configuration what came ("+") and went ("-")

  friend bool operator==(const AuditEvent&, const AuditEvent&) = default;
};

// Where a log ends.
struct AuditHead {
  int64_t number = 0;  // of its last line; 0: it has none
  std::string hash;    // of that one
  int64_t first = 1;   // the number of the file's first line; those before it are in other files

  // Whether it is the same line.
  bool is_at(const AuditHead& other) const { return number == other.number && hash == other.hash; }
};

class AuditChain {
 public:
  static constexpr size_t kTextMax = 1024;    // bytes of each text; more is cut
  static constexpr size_t kDetailMax = 8192;  // of a detail's lines in all

  // Goes on behind `head`.
  AuditChain(std::string key, AuditHead head);

  // The next line, with its line feed.
  std::string append(const AuditEvent& event);
  const AuditHead& head() const { return head_; }
  // The line that was appended last is there, or never came to be.
  void go_on(AuditHead head) { head_ = std::move(head); }
  // The next line is the first one of another file.
  void begin_file() { head_.first = head_.number + 1; }
  // The file beside the log.
  std::string head_text() const;

 private:
  const std::string key_;
  AuditHead head_;
};

// Errors: kInvalidArgument, it is none, or not sealed under this key.
Result<AuditHead> read_audit_head(std::string_view text, std::string_view key);

struct AuditLine {
  int64_t number = 0;
  std::string previous;
  std::string hash;
  AuditEvent event = {};
};
// One line, without its line feed. Errors: as above.
Result<AuditLine> read_audit_line(std::string_view line, std::string_view key);

struct AuditVerdict {
  int64_t lines = 0;  // that are sound, from the beginning
  // What is wrong first, by the line of the file (from 1; 0: of the head).
  struct Fault {
    int64_t line = 0;
    std::string what;
  };
  std::optional<Fault> fault = {};
  AuditHead end = {};      // behind the sound ones
  bool is_ahead = false;   // one line more than the head says: the writer ended between the two
  bool has_noted = false;  // the head that was noted elsewhere is one of these lines'
};
struct AuditProof {
  // Where the log goes on. Without it a file that its head says to begin later begins there.
  AuditHead before = {};
  std::optional<AuditHead> head = {};  // none: there is none to hold it against
  std::string noted = {};              // a line's hash that was noted elsewhere; empty: none was
};
// A whole file. `seen`: each sound line, if anybody wants them.
AuditVerdict verify_audit(std::string_view text, std::string_view key, const AuditProof& proof,
                          std::vector<AuditLine>* seen);

}  // namespace pelton::access
