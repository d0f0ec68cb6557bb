// Who has signed in at a console that commands. A key is exchanged for a cookie, which pages cannot
// read and other sites' pages cannot send, and for a token that a change must bring along, which
// only the console's own page can read. Attempts with wrong keys are throttled, by address and in
// all. Kept in this process's memory only, digests in place of cookies: a restart signs everybody
// out. Bounded. Owned by a console; any thread.
//
//   GET    /console/session          {"name","token","seconds"}, or null: nobody has signed in
//   POST   /console/session          {"key"}: signs in
//   DELETE /console/session?all=true  signs out, here or everywhere
//
// Example: a wrong key from 10.0.0.7 five times within a minute: the sixth attempt gets 429 with
// Retry-After, whatever key it brings, and so learns nothing of it; 10.0.0.8 may try.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/clock.h"
#include "net/http_message.h"

namespace pelton::console {

class Sessions {
 public:
  static constexpr int64_t kSeconds = 12 * 3600;
  static constexpr size_t kSessionsMax = 64;  // the oldest goes
  static constexpr int kAttempts = 5;         // with wrong keys, of an address
  static constexpr int kAttemptsOfAll = 60;
  static constexpr int64_t kAttemptSeconds = 12;  // after which an address has another one
  static constexpr size_t kAddressesMax = 1024;

  struct Account {
    std::string id;    // what is asked for again with each change
    std::string name;  // that is shown and logged
  };
  struct Parts {
    // None: of nobody who may sign in.
    std::function<std::optional<Account>(std::string_view key)> account_of;
    // Whether it is an operator's, of a role that may less.
    std::function<bool(std::string_view key)> is_lesser;
    std::function<bool(const std::string& id)> is_valid;  // still
    std::function<void(std::string_view what, const Account&, std::string_view address)> on_event;
    const base::Clock& clock;  // outlives it
  };
  explicit Sessions(Parts parts);

  // Answers a request to /console/session.
  net::HttpResponse answer(const net::HttpRequest& request);

  // No key is an operator's any more.
  void end_all();

  // Whose cookie a request has; none: nobody's that is in force. It says nothing of what he may.
  std::optional<Account> whose(const net::HttpRequest& request);

  // Who makes this change; an answer if nobody does who may: of another page (403), without a valid
  // cookie (401), without the token (403).
  std::variant<Account, net::HttpResponse> admit(const net::HttpRequest& request);

 private:
  struct Session {
    Account account;
    std::string token;
    std::string address;  // whence it was begun: a cookie means nothing from elsewhere
    int64_t begun_ns = 0;
  };
  // Attempts that are left, and when that was so.
  struct Attempts {
    double left = 0;
    int64_t at_ns = 0;
  };
  using ByCookie = std::map<std::string, Session>;

  net::HttpResponse sign_in(const net::HttpRequest& request);
  net::HttpResponse refused_key(const std::string& key, const std::string& address) const;
  net::HttpResponse sign_out(const net::HttpRequest& request);
  // With the lock held.
  ByCookie::iterator find(const net::HttpRequest& request);
  double left(const Attempts& attempts, double most, double per_second) const;
  Attempts& attempts_of(const std::string& address);
  void note_wrong(const std::string& address);
  bool is_throttled(const std::string& address);
  // Ends the session that the browser has already; its token, if it was this account's.
  std::optional<std::string> replaced_token(const net::HttpRequest& request,
                                            const Account& account);
  std::string begin(Session session);

  const Parts parts_;
  const std::string tag_;  // in the names of its cookies; drawn
  std::mutex mutex_;
  // All guarded by mutex_.
  ByCookie sessions_;  // by the cookie's digest
  std::map<std::string, Attempts> attempts_;
  Attempts of_all_{.left = kAttemptsOfAll, .at_ns = 0};
};

}  // namespace pelton::console
