// What a hub says about a model: its files, and where each one's bytes are. Asks with retries,
// follows redirects by hand, and shows the token to the hub's own origin only. One thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "hub/hub_access.h"
#include "hub/hub_url.h"
#include "hub/retry.h"
#include "hub/transfers.h"

namespace pelton::hub {

struct HubFile {
  std::string path;
  std::optional<int64_t> size;
  std::string sha256;  // of a large file's bytes; empty: unknown
  std::string git_id;  // what git calls a small file's bytes; empty: unknown
};

struct Revision {
  std::string commit;
  std::vector<HubFile> files;
};

// The answer to "?blobs=true". Errors: kBadCheckpoint for what is none, and for a path that leads
// out of the model's folder.
Result<Revision> parse_revision(std::string_view text);

struct FileLocation {
  std::string url;
  bool with_token = false;  // it is the hub's own origin
  std::string etag;         // without quotes
  int64_t size = 0;
};

class HubApi {
 public:
  // Asked between waits; false ends the call with kCancelled.
  using KeepGoing = base::FunctionRef<bool()>;

  HubApi(const HubAccess& access, const RetryOptions& retry, Transfers& transfers,
         const base::Clock& clock)
      : access_(access), retry_(retry), transfers_(transfers), clock_(clock) {}

  // Errors: kNotFound (no such model, or not for this token: the message says what to do),
  // kUnavailable (no answer), kBadCheckpoint (an answer that is none).
  Result<Revision> revision(const std::string& model, const std::string& name,
                            KeepGoing keep_going);
  Result<FileLocation> locate(const std::string& model, const std::string& commit,
                              const std::string& file, KeepGoing keep_going);

  // Why the hub said no, with what the user can do.
  Error refusal(const std::string& model, const ResponseHead& head) const;

 private:
  struct Answer {
    ResponseHead head;
    std::string body;
    std::string url;  // that answered, after redirects
    bool own_origin = true;
  };
  Result<Answer> ask(TransferRequest request, KeepGoing keep_going);
  Result<Answer> ask_once(const TransferRequest& request, KeepGoing keep_going);

  const HubAccess& access_;
  const RetryOptions retry_;
  bool heard_ = false;  // the hub has answered something
  Transfers& transfers_;
  const base::Clock& clock_;
};

}  // namespace pelton::hub
