// Reads a JSON object field by field for a validator: each read names the field by its path and the
// limit it broke. The first complaint sticks and later reads give their fallback, so a validator
// reads as a list. null counts as absent, as the OpenAI SDKs expect. A value on the stack.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/field_table.h"
#include "base/function_ref.h"
#include "base/json.h"
#include "base/result.h"

namespace pelton::api {

// What becomes of a member that nobody documents.
enum class UnknownFields : uint8_t { kWarn, kRefuse };

class Fields {
 public:
  // Whether unread() is going to be asked for; keeping the names of reads costs a little.
  enum class Reads { kForgotten, kKept };

  // `object` must be an object; `path` is its own ("" for the body); `complaint` collects. `table`:
  // where each read is noted, with its kind and limits; null: nowhere.
  Fields(const Json& object, std::string path, std::optional<Error>& complaint,
         Reads reads = Reads::kForgotten, FieldTable* table = nullptr);

  // A member that is there and not null.
  const Json* find(std::string_view key) const;
  // As find, and complains unless it is of that kind.
  const Json* object(std::string_view key) const;
  const Json* array(std::string_view key, size_t items_max) const;

  std::optional<double> number(std::string_view key, const NumberRange& range) const;
  std::optional<int64_t> integer(std::string_view key, const IntegerRange& range) const;
  std::optional<bool> boolean(std::string_view key) const;
  // nullptr if absent.
  const std::string* text(std::string_view key, size_t bytes_max) const;

  // Complains about a field; "" is the object itself.
  void refuse(std::string_view key, std::string message) const;
  // A field that we would have to obey and do not: fails closed.
  void refuse_unsupported(std::string_view key, std::string_view what) const;

  // Of Reads::kKept: each member that is not null and that no read above has asked for, in the
  // request's order. What `visit` is given has been dropped by whoever reads the object.
  using VisitUnread = base::FunctionRef<void(const std::string& key, const Json& value)>;
  void unread(VisitUnread visit) const;
  // The same, each refused that asks for something (not false, not empty) and is not `harmless`: of
  // a small object all of whose members must be obeyed.
  void refuse_unread(std::span<const std::string_view> harmless) const;

  std::string path(std::string_view key) const;
  const Json& json() const { return object_; }
  bool failed() const { return complaint_.has_value(); }
  std::optional<Error>& complaint() const { return complaint_; }

 private:
  const Json& object_;
  const std::string path_;
  std::optional<Error>& complaint_;
  // Of an object of very many members (most of them nobody asks for) a word of each: a validator
  // asks some eighty times, and they fit where the members do not. Else empty.
  std::vector<uint32_t> marks_;
  const Reads reads_;
  FieldTable* const table_;
  mutable std::vector<std::string> read_keys_;  // of Reads::kKept
};

// Of a word that is bounded and not used: it must be one of `words`, where it is there.
void check_word(const Fields& fields, std::string_view key,
                std::span<const std::string_view> words);

// Of two names of one thing that a body gives different values.
void refuse_two_values(const Fields& body, std::string_view key, std::string_view other);

// "timeout", in seconds.
std::optional<double> read_timeout(const Fields& body);

// "messages[3]"
std::string item_path(std::string_view array_path, size_t index);

// The integer that `value` is (3.0 too), or nothing.
std::optional<int64_t> exact_integer(const Json& value);

}  // namespace pelton::api
