// The API keys that are asked for, and whose each is. Filled at once; then immutable, any thread.
// A new key file is a new set. Keys are looked up by digests made with a secret of the set's own:
// how long that takes says something of digests that nobody outside can compute, and so nothing of
// keys.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "admission/rate_limiter.h"
#include "base/result.h"

namespace pelton::access {

// Who asks, and what they may ask for.
struct Principal {
  std::string tenant;   // empty: one of those who have no name of their own
  double weight = 1.0;  // the tenant's share beside others
  std::string account;  // the key's own, whose limits these are; empty: no key was asked for
  admission::Limits limits;
  // May change what the server serves (adapters). Whoever is asked for no key may.
  bool is_admin = false;
};

// The account that a request is billed to, beside others at the engine: its tenant's. Those without
// a name of their own may say whom they ask for ("user"); as no tenant's name has a blank, that is
// never a tenant's account.
std::string billing_account(std::string_view tenant, std::string_view user);

class ApiKeys {
 public:
  static constexpr size_t kKeysMax = 10'000;

  ApiKeys();

  // One key, of a tenant without a name.
  void add(std::string_view key);
  // The same, an operator's. One that is there already becomes his.
  void add_admin(std::string_view key);

  // A line each: KEY [TENANT [WEIGHT]] [rpm=N] [tpm=N] [concurrent=N] [role=admin]. Empty lines and
  // those that begin with '#' are none. A key without a tenant is a tenant of its own; no tenant's
  // name has a blank. A weight is 0.001 to 1000. The key may bring N requests a minute, N tokens a
  // minute and N requests at once; role=admin makes it an operator's. Errors: kBadConfig with the
  // line; never a key.
  Result<void> add_file(std::string_view text, const std::string& file_name);

  bool empty() const { return principals_.empty(); }
  bool have_limits() const;  // of any key
  // Whose keys have limits: by tenant, then by account.
  std::vector<Principal> limited() const;

  // Null if the key belongs to nobody.
  const Principal* principal_of(std::string_view key) const;

 private:
  Result<Principal> read_principal(const std::vector<std::string_view>& words,
                                   const std::string& hash) const;

  std::string digest_of(std::string_view key) const;

  std::string secret_;
  std::map<std::string, Principal, std::less<>> principals_;  // by the key's digest
  std::map<std::string, double, std::less<>> weights_;        // of tenants that have one
};

}  // namespace pelton::access
