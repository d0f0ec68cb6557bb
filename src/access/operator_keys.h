// What operators' keys may do at an admin listener, where keys are asked for: role=view looks,
// role=operate commands what runs, role=admin changes the configuration and erases. Of a file of
// keys the words that say so; all else of it is ApiKeys'. Filled at once; then immutable, any
// thread. As ApiKeys', digests are made with a secret of the set's own.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace pelton::access {

enum class OperatorRole { kNone, kView, kOperate, kAdmin };  // each may what those before it may

std::string_view role_name(OperatorRole role);  // "view"; of kNone "none"
// Of "role=view"; none: it is no such word.
std::optional<OperatorRole> role_word(std::string_view word);

class OperatorKeys {
 public:
  struct Operator {
    std::string name;  // the key's tenant; of a key that has none "an operator"
    OperatorRole role = OperatorRole::kNone;
  };

  OperatorKeys();

  // Lines as ApiKeys::add_file() has read them: what it refuses is not to come here.
  void add_file(std::string_view text);
  void add(std::string_view key, Operator whose);

  bool empty() const { return operators_.empty(); }
  // Null: no operator's.
  const Operator* operator_of(std::string_view key) const;

 private:
  std::string digest_of(std::string_view key) const;

  std::string secret_;
  std::map<std::string, Operator, std::less<>> operators_;  // by the key's digest
};

}  // namespace pelton::access
