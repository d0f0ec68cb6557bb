// What may well go wrong travels as a value. Result<T> is a T or an Error; TRY and TRY_ASSIGN pass
// an Error up. A bug in our own code is not an Error but a CHECK (base/check.h).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace pelton {

enum class ErrorCode {
  kInvalidArgument,  // the caller's request or flag is wrong
  kNotFound,         // no such model, file, response
  kBadCheckpoint,    // a model's files are damaged or not what they claim to be
  kBadConfig,        // our own configuration is wrong
  kUnsupported,      // well formed, but not something we do
  kDoesNotFit,       // needs more memory, context or blocks than there is
  kOverloaded,       // a bounded queue is full; try again later
  kUnavailable,      // shutting down or not ready yet
  kCancelled,        // the caller went away
  kDeadline,         // out of time
  kAddressInUse,
  kIo,        // the operating system said no
  kInternal,  // ours
};

// The code's lower-case name, as logs show it: "bad_checkpoint".
std::string_view error_code_name(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // one sentence for the user: what, where, expected, found
  std::string field;    // the request field or flag at fault, as a path ("messages[2].content")
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    CHECK(ok(), std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  const T& value() const& {
    CHECK(ok(), std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  T&& value() && {
    CHECK(ok(), std::get<1>(state_).message);
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    CHECK(!ok());
    return std::get<1>(state_);
  }
  Error&& error() && {
    CHECK(!ok());
    return std::get<1>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT: implicit

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const& {
    CHECK(!ok_);
    return error_;
  }
  Error&& error() && {
    CHECK(!ok_);
    return std::move(error_);
  }

 private:
  Error error_;
  bool ok_ = true;
};

}  // namespace pelton

#define PELTON_CONCAT_INNER(a, b) a##b
#define PELTON_CONCAT(a, b) PELTON_CONCAT_INNER(a, b)

// TRY(write(file));
#define TRY(expression)                                     \
  do {                                                      \
    if (auto try_result = (expression); !try_result.ok()) { \
      return std::move(try_result).error();                 \
    }                                                       \
  } while (false)

// TRY_ASSIGN(const std::string text, read_file(path));
#define TRY_ASSIGN(declaration, expression) \
  TRY_ASSIGN_INNER(PELTON_CONCAT(try_result_, __LINE__), declaration, expression)
#define TRY_ASSIGN_INNER(result, declaration, expression) \
  auto result = (expression);                             \
  if (!result.ok()) return std::move(result).error();     \
  declaration = std::move(result).value()
