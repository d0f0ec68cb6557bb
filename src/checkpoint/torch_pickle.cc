#include "checkpoint/torch_pickle.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/foreign_text.h"
#include "checkpoint/safetensors.h"

namespace pelton::checkpoint {
namespace {

using tensor::DType;

// Python's Lib/pickletools.py.
enum Opcode : uint8_t {
  kProto = 0x80,
  kStop = '.',
  kMark = '(',
  kNone = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8a,
  kBinUnicode = 'X',
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyTuple = ')',
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kGlobal = 'c',
  kReduce = 'R',
  kBuild = 'b',
  kBinPersId = 'Q',
};

enum class Name : uint8_t { kOrderedDict, kRebuildTensor, kRebuildParameter, kStorage };
struct KnownName {
  std::string_view module;
  std::string_view name;
  Name kind;
  DType dtype = DType::kF32;
};
constexpr std::array kNames = {
    KnownName{"collections", "OrderedDict", Name::kOrderedDict},
    KnownName{"torch._utils", "_rebuild_tensor_v2", Name::kRebuildTensor},
    KnownName{"torch._utils", "_rebuild_parameter", Name::kRebuildParameter},
    KnownName{"torch", "FloatStorage", Name::kStorage, DType::kF32},
    KnownName{"torch", "HalfStorage", Name::kStorage, DType::kF16},
    KnownName{"torch", "BFloat16Storage", Name::kStorage, DType::kBf16},
    KnownName{"torch", "DoubleStorage", Name::kStorage, DType::kF64},
    KnownName{"torch", "LongStorage", Name::kStorage, DType::kI64},
    KnownName{"torch", "IntStorage", Name::kStorage, DType::kI32},
    KnownName{"torch", "ShortStorage", Name::kStorage, DType::kI16},
    KnownName{"torch", "CharStorage", Name::kStorage, DType::kI8},
    KnownName{"torch", "ByteStorage", Name::kStorage, DType::kU8},
    KnownName{"torch", "BoolStorage", Name::kStorage, DType::kBool},
};

struct Value {
  enum class Kind : uint8_t {
    kMark,
    kNone,
    kBoolean,
    kInteger,
    kText,
    kList,
    kTuple,
    kDict,
    kName,
    kStorage,
    kTensor
  };
  Kind kind = Kind::kNone;
  int64_t number = 0;     // kInteger; kName: which of kNames
  std::string text = {};  // kText; kStorage, kTensor: the storage's key
  // Values, by their number: elements; of a kDict keys and values by turns.
  std::vector<uint32_t> items = {};
  DType dtype = DType::kF32;        // kStorage, kTensor
  std::vector<int64_t> shape = {};  // kTensor
  uint64_t offset = 0;              // likewise
};
using Kind = Value::Kind;

// What is copied from value to value is small: of each there may be very many.
constexpr size_t kKeyBytesMax = 64;
constexpr size_t kArgumentsMax = 16;

class Reader {
 public:
  Reader(std::span<const uint8_t> pickle, const std::string& path) : pickle_(pickle), path_(path) {}

  Result<std::vector<PickledTensor>> read() {
    while (!stopped_) {
      TRY_ASSIGN(const uint64_t opcode, number(1));
      TRY(step(static_cast<uint8_t>(opcode)));
    }
    TRY_ASSIGN(const uint32_t top, pop());
    if (values_[top].kind != Kind::kDict) return bad("holds no dict of tensors");
    std::vector<PickledTensor> tensors;
    const std::vector<uint32_t>& items = values_[top].items;
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      const Value& key = values_[items[i]];
      const Value& value = values_[items[i + 1]];
      if (value.kind != Kind::kTensor) continue;
      if (key.kind != Kind::kText) return bad("names a tensor by something else than a text");
      tensors.push_back({.name = key.text,
                         .storage = value.text,
                         .dtype = value.dtype,
                         .shape = value.shape,
                         .offset = value.offset});
    }
    return tensors;
  }

 private:
  Error bad(std::string_view what) const {
    return Error{ErrorCode::kBadCheckpoint, fmt::format("{}: the pickle {}", path_, what)};
  }
  Error unsupported(const std::string& what) const {
    return Error{ErrorCode::kUnsupported, fmt::format("{}: the pickle {}", path_, what)};
  }

  Result<std::span<const uint8_t>> bytes(uint64_t count) {
    if (count > pickle_.size() - at_) return bad("ends amid an opcode");
    const std::span<const uint8_t> taken = pickle_.subspan(at_, count);
    at_ += count;
    return taken;
  }
  Result<uint64_t> number(size_t size) {
    TRY_ASSIGN(const std::span<const uint8_t> taken, bytes(size));
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) value |= uint64_t{taken[i]} << (8 * i);
    return value;
  }
  Result<std::string> line() {
    std::string text;
    while (true) {
      TRY_ASSIGN(const uint64_t byte, number(1));
      if (byte == '\n') return text;
      if (text.size() == kPickleTextBytesMax) return bad("holds too long a name");
      text.push_back(static_cast<char>(byte));
    }
  }

  Result<void> push(Value value) {
    if (values_.size() == kPickleValuesMax || stack_.size() == kPickleValuesMax) {
      return bad(fmt::format("holds more than {} values", kPickleValuesMax));
    }
    stack_.push_back(static_cast<uint32_t>(values_.size()));
    values_.push_back(std::move(value));
    return {};
  }
  Result<uint32_t> pop() {
    if (stack_.empty()) return bad("takes from an empty stack");
    const uint32_t top = stack_.back();
    stack_.pop_back();
    return top;
  }
  Result<std::vector<uint32_t>> pop_some(size_t count) {
    if (count > stack_.size()) return bad("takes from an empty stack");
    std::vector<uint32_t> taken(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return taken;
  }
  // Down to the last mark, which goes too.
  Result<std::vector<uint32_t>> pop_marked() {
    size_t first = stack_.size();
    while (first > 0 && values_[stack_[first - 1]].kind != Kind::kMark) --first;
    if (first == 0) return bad("takes up to a mark that is not there");
    std::vector<uint32_t> taken(stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end());
    stack_.resize(first - 1);
    return taken;
  }
  Result<void> push_tuple(std::vector<uint32_t> items) {
    return push({.kind = Kind::kTuple, .number = 0, .text = {}, .items = std::move(items)});
  }
  // Behind what is on top, which stays there. What all of them hold together is bounded, as a value
  // may be put into many.
  Result<void> add(const std::vector<uint32_t>& items, Kind kind) {
    if (stack_.empty() || values_[stack_.back()].kind != kind) {
      return bad("puts something into what takes nothing");
    }
    if (kind == Kind::kDict && items.size() % 2 != 0) return bad("has a key without a value");
    std::vector<uint32_t>& to = values_[stack_.back()].items;
    to.insert(to.end(), items.begin(), items.end());
    return {};
  }

  Result<void> put(uint64_t key) {
    if (stack_.empty()) return bad("remembers what is not there");
    if (memo_.size() == kPickleValuesMax) return bad("remembers too many values");
    memo_[static_cast<uint32_t>(key)] = stack_.back();
    return {};
  }
  Result<void> get(uint64_t key) {
    const auto found = memo_.find(static_cast<uint32_t>(key));
    if (found == memo_.end()) return bad("asks for what it has not remembered");
    if (++gets_ > kPickleValuesMax) return bad("asks for remembered values too often");
    stack_.push_back(found->second);
    return {};
  }

  Result<void> read_text() {
    TRY_ASSIGN(const uint64_t size, number(4));
    if (size > kPickleTextBytesMax) return bad("holds too long a text");
    TRY_ASSIGN(const std::span<const uint8_t> taken, bytes(size));
    return push({.kind = Kind::kText,
                 .number = 0,
                 .text = {reinterpret_cast<const char*>(taken.data()), taken.size()}});
  }
  Result<void> read_long() {
    TRY_ASSIGN(const uint64_t size, number(1));
    if (size > sizeof(int64_t)) return unsupported("holds an integer of more than 64 bits");
    TRY_ASSIGN(uint64_t value, number(size));
    const bool is_negative = size > 0 && (value >> (8 * size - 1) & 1) != 0;
    if (is_negative && size < sizeof(int64_t)) value |= ~uint64_t{0} << (8 * size);
    return push({.kind = Kind::kInteger, .number = static_cast<int64_t>(value)});
  }
  Result<void> read_name() {
    TRY_ASSIGN(const std::string module, line());
    TRY_ASSIGN(const std::string name, line());
    for (size_t i = 0; i < kNames.size(); ++i) {
      if (kNames[i].module != module || kNames[i].name != name) continue;
      return push({.kind = Kind::kName, .number = static_cast<int64_t>(i)});
    }
    return unsupported(
        fmt::format("names {}, which is no part of a plain state dict: it is not "
                    "executed",
                    shown(module + "." + name)));
  }

  const Value* item(const Value& tuple, size_t index, Kind kind) const {
    if (tuple.kind != Kind::kTuple || index >= tuple.items.size()) return nullptr;
    const Value& value = values_[tuple.items[index]];
    return value.kind == kind ? &value : nullptr;
  }

  // ("storage", FloatStorage, "0", "cpu", elements)
  Result<void> read_storage() {
    TRY_ASSIGN(const uint32_t id, pop());
    const Value& tuple = values_[id];
    const Value* const word = item(tuple, 0, Kind::kText);
    const Value* const type = item(tuple, 1, Kind::kName);
    const Value* const key = item(tuple, 2, Kind::kText);
    const Value* const elements = item(tuple, 4, Kind::kInteger);
    const bool is_whole = word != nullptr && word->text == "storage" && type != nullptr &&
                          key != nullptr && elements != nullptr && elements->number >= 0;
    if (!is_whole || key->text.size() > kKeyBytesMax) {
      return bad("has a reference that is no storage");
    }
    const KnownName& name = kNames[static_cast<size_t>(type->number)];
    if (name.kind != Name::kStorage) return bad("has a storage of no known type");
    return push(
        {.kind = Kind::kStorage, .number = 0, .text = key->text, .items = {}, .dtype = name.dtype});
  }

  Result<std::vector<int64_t>> integers(const Value* tuple) const {
    std::vector<int64_t> numbers;
    if (tuple == nullptr || tuple->items.size() > kSafetensorsDimensionsMax) {
      return bad("has a tensor without a shape that is read");
    }
    for (size_t i = 0; i < tuple->items.size(); ++i) {
      const Value* const one = item(*tuple, i, Kind::kInteger);
      if (one == nullptr || one->number < 0) return bad("has a shape that is no list of sizes");
      numbers.push_back(one->number);
    }
    return numbers;
  }

  // (storage, offset, sizes, strides, requires_grad, hooks)
  Result<void> rebuild_tensor(const Value& arguments) {
    const Value* const storage = item(arguments, 0, Kind::kStorage);
    const Value* const offset = item(arguments, 1, Kind::kInteger);
    if (storage == nullptr || offset == nullptr || offset->number < 0) {
      return bad("has a tensor without a storage");
    }
    TRY_ASSIGN(std::vector<int64_t> shape, integers(item(arguments, 2, Kind::kTuple)));
    TRY_ASSIGN(const std::vector<int64_t> strides, integers(item(arguments, 3, Kind::kTuple)));
    if (strides.size() != shape.size()) return bad("has a tensor with other strides than sizes");
    uint64_t row = 1;  // elements of all dimensions behind
    for (size_t i = shape.size(); i-- > 0;) {
      const auto size = static_cast<uint64_t>(shape[i]);
      if (size > 1 && static_cast<uint64_t>(strides[i]) != row) {
        return unsupported("has a tensor that does not lie in one piece");
      }
      if (size != 0 && row > (uint64_t{1} << 48) / size) return bad("has too large a tensor");
      row *= size;
    }
    return push({.kind = Kind::kTensor,
                 .number = 0,
                 .text = storage->text,
                 .items = {},
                 .dtype = storage->dtype,
                 .shape = std::move(shape),
                 .offset = static_cast<uint64_t>(offset->number)});
  }

  Result<void> reduce() {
    TRY_ASSIGN(const uint32_t arguments_id, pop());
    TRY_ASSIGN(const uint32_t callee_id, pop());
    if (values_[arguments_id].items.size() > kArgumentsMax) return bad("calls with too much");
    // A copy: what is pushed may move the values.
    const Value arguments = values_[arguments_id];
    if (values_[callee_id].kind != Kind::kName || arguments.kind != Kind::kTuple) {
      return bad("calls what is no name");
    }
    switch (kNames[static_cast<size_t>(values_[callee_id].number)].kind) {
      case Name::kOrderedDict:
        if (!arguments.items.empty()) return unsupported("fills an OrderedDict by a call");
        return push({.kind = Kind::kDict});
      case Name::kRebuildTensor:
        return rebuild_tensor(arguments);
      case Name::kRebuildParameter: {
        const Value* const data = item(arguments, 0, Kind::kTensor);
        if (data == nullptr) return bad("has a parameter without a tensor");
        return push(Value(*data));
      }
      case Name::kStorage:
        break;
    }
    return unsupported("calls a storage");
  }

  Result<void> step(uint8_t opcode) {
    switch (opcode) {
      case kProto: {
        TRY_ASSIGN(const uint64_t version, number(1));
        if (version != 2) return unsupported(fmt::format("is of protocol {}, not 2", version));
        return {};
      }
      case kStop:
        stopped_ = true;
        return {};
      case kMark:
        return push({.kind = Kind::kMark});
      case kNone:
        return push({});
      case kNewTrue:
      case kNewFalse:
        return push({.kind = Kind::kBoolean, .number = opcode == kNewTrue});
      case kBinInt: {
        TRY_ASSIGN(const uint64_t value, number(4));
        return push(
            {.kind = Kind::kInteger, .number = static_cast<int32_t>(static_cast<uint32_t>(value))});
      }
      case kBinInt1:
      case kBinInt2: {
        TRY_ASSIGN(const uint64_t value, number(opcode == kBinInt1 ? 1 : 2));
        return push({.kind = Kind::kInteger, .number = static_cast<int64_t>(value)});
      }
      case kLong1:
        return read_long();
      case kBinUnicode:
        return read_text();
      default:
        return step_of_parts(opcode);
    }
  }

  // What holds other values, and what remembers them.
  Result<void> step_of_parts(uint8_t opcode) {
    switch (opcode) {
      case kEmptyList:
        return push({.kind = Kind::kList});
      case kEmptyDict:
        return push({.kind = Kind::kDict});
      case kEmptyTuple:
        return push_tuple({});
      case kTuple: {
        TRY_ASSIGN(std::vector<uint32_t> items, pop_marked());
        return push_tuple(std::move(items));
      }
      case kTuple1:
      case kTuple2:
      case kTuple3: {
        TRY_ASSIGN(std::vector<uint32_t> items, pop_some(size_t{opcode} - kTuple1 + 1));
        return push_tuple(std::move(items));
      }
      case kAppend:
      case kSetItem: {
        TRY_ASSIGN(const std::vector<uint32_t> items, pop_some(opcode == kAppend ? 1 : 2));
        return add(items, opcode == kAppend ? Kind::kList : Kind::kDict);
      }
      case kAppends:
      case kSetItems: {
        TRY_ASSIGN(const std::vector<uint32_t> items, pop_marked());
        return add(items, opcode == kAppends ? Kind::kList : Kind::kDict);
      }
      case kBinPut:
      case kLongBinPut: {
        TRY_ASSIGN(const uint64_t key, number(opcode == kBinPut ? 1 : 4));
        return put(key);
      }
      case kBinGet:
      case kLongBinGet: {
        TRY_ASSIGN(const uint64_t key, number(opcode == kBinGet ? 1 : 4));
        return get(key);
      }
      case kGlobal:
        return read_name();
      case kReduce:
        return reduce();
      case kBuild: {  // an OrderedDict's attributes (_metadata): nothing that a tensor depends on
        TRY_ASSIGN(const uint32_t state, pop());
        static_cast<void>(state);
        if (stack_.empty() || values_[stack_.back()].kind != Kind::kDict) {
          return unsupported("gives attributes to what is no dict");
        }
        return {};
      }
      case kBinPersId:
        return read_storage();
      default:
        return unsupported(fmt::format(
            "has the opcode {:#04x}, which is not one of a plain state dict's", opcode));
    }
  }

  const std::span<const uint8_t> pickle_;
  const std::string& path_;
  size_t at_ = 0;
  bool stopped_ = false;
  std::vector<Value> values_;
  std::vector<uint32_t> stack_;  // of values
  std::unordered_map<uint32_t, uint32_t> memo_;
  size_t gets_ = 0;
};

}  // namespace

Result<std::vector<PickledTensor>> read_torch_pickle(std::span<const uint8_t> pickle,
                                                     const std::string& path) {
  return Reader(pickle, path).read();
}

}  // namespace pelton::checkpoint
