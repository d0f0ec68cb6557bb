// What single keys may reach: of `keys_file` the words that are a gateway's (models=, pool=,
// region=, explain), and whose keys are an operator's (role=admin); the others are
// access::ApiKeys'. Filled at once; then immutable, any thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::gateway {

// Of what is empty nothing is said.
struct KeyScope {
  std::vector<std::string> models;  // it knows of no others
  std::string pool;                 // its requests go to no other one
  std::string region;               // nor to workers of another region
  bool may_explain = false;         // hears of workers and costs (x-pelton-explain)
  bool is_gateway = false;          // of another region: may ask for other tenants, and sees
                                    // what models there are (region_summary.h)
  bool is_operator = false;         // commands the fleet from the console

  bool operator==(const KeyScope&) const = default;
};

class KeyScopes {
 public:
  // Errors: kBadConfig with the line; never a key.
  static Result<KeyScopes> parse(std::string_view text, const std::string& file);

  // By access::Principal::account; null: nothing is said of it.
  const KeyScope* of(const std::string& account) const;
  // Whether any word is said that only gateways know.
  bool are_for_gateways() const;
  bool has_operators() const;

 private:
  std::map<std::string, KeyScope> scopes_;
};

}  // namespace pelton::gateway
