// With what a client that has lost its gateway amid a stream resumes it at another one:
//
//   x-pelton-resume: CREATED_MS-SEED-MAC   in the stream's head; shown to the next gateway
//   id: 17f.9-DIGEST                       of each event behind which it may be cut
//
// An id says how many tokens each choice has had there (f: and it has ended) and a digest of them;
// it is the Last-Event-ID of the request that resumes.
//
// An answer is a function of its request, its seed and the day it was begun on, so the next gateway
// has it computed anew up to that place, sees by the digest that it is the same, and passes on what
// comes behind it. The MAC is over whose request it is, its id, path and body, by a secret that the
// gateways share: of another tenant's, or for another body, a ticket is none. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::gateway {

inline constexpr std::string_view kResumeHeader = "x-pelton-resume";
inline constexpr std::string_view kLastEventHeader = "last-event-id";

// What a client says in kResumeHeader that wants a ticket for its new stream.
inline constexpr std::string_view kResumeWanted = "1";

struct StreamTicket {
  int64_t created_ms = 0;  // since 1970: the answer's `created`, and its prompt's day
  uint64_t seed = 0;       // of its sampling, where the request has none

  // Whose it is, and for what.
  struct Of {
    std::string_view tenant;
    std::string_view request_id;
    std::string_view path;
    std::string_view body;
  };
  std::string seal(std::string_view secret, const Of& of) const;
  // kInvalidArgument: it is none for that.
  static Result<StreamTicket> open(std::string_view text, std::string_view secret, const Of& of);
};

// A place in an answer: behind so many tokens of each choice.
struct StreamPlace {
  struct Choice {
    size_t tokens = 0;
    bool finished = false;
    friend bool operator==(const Choice&, const Choice&) = default;
  };
  static constexpr size_t kChoicesMax = 128;
  static constexpr size_t kTokensMax = size_t{1} << 30;

  std::vector<Choice> choices;  // those that are left out have said nothing
  uint64_t digest = 0;          // of all these tokens

  std::string text() const;
  // kInvalidArgument: it is none.
  static Result<StreamPlace> parse(std::string_view text);
};

}  // namespace pelton::gateway
